"""Policies of the user's own, named `package.module:Class` and imported from the current environment.

Whatever goes wrong is told as one error that names the cause; nothing is used that does not meet the protocol. It must
not know what a policy does.
"""

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from importlib import import_module
from inspect import signature
from types import ModuleType

from tao.core.ports import Policy
from tao.policies.errors import UnusablePolicyError

KEBAB_CASE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def load_policy(reference: str) -> Policy:
    """A fresh policy made by calling what `module:name` refers to, without arguments; `UnusablePolicyError` otherwise."""
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute.isidentifier():
        raise UnusablePolicyError(
            f"{reference!r} is no reference to a policy: write package.module:Class, for instance my_policies:Mine"
        )
    maker = _attribute(_module(module_name), attribute)
    if not callable(maker):
        raise UnusablePolicyError(f"{reference} is {type(maker).__name__}, neither a class nor a function")
    try:
        policy = maker()
    except Exception as error:
        raise UnusablePolicyError(
            f"{reference}() failed: {_told(error)}. A policy is made without arguments"
        ) from error
    complaints = list(_complaints(policy))
    if complaints:
        raise UnusablePolicyError(f"{reference} does not meet tao.core.ports.Policy: {'; '.join(complaints)}")
    return policy  # type: ignore[no-any-return]  # just checked


def _module(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UnusablePolicyError(
                f"there is no module {error.name!r} in this environment: install it, or add its folder to PYTHONPATH"
            ) from error
        raise UnusablePolicyError(f"importing {name} failed: {_told(error)}") from error
    except Exception as error:
        raise UnusablePolicyError(f"importing {name} failed: {_told(error)}") from error


def _attribute(module: ModuleType, name: str) -> object:
    found: object = getattr(module, name, None)
    if found is None:
        near = get_close_matches(name, [known for known in vars(module) if not known.startswith("_")], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UnusablePolicyError(f"module {module.__name__} has no {name}{hint}")
    return found


def _complaints(policy: object) -> Iterator[str]:
    """What keeps an object from being a policy."""
    name = getattr(policy, "name", None)
    if not isinstance(name, str):
        yield "it has no `name`, a str"
    elif not KEBAB_CASE.fullmatch(name):
        yield f"its name {name!r} is not in kebab-case, like my-policy"
    for method, model in _methods():
        found = getattr(policy, method, None)
        expected = list(signature(model).parameters)[1:]
        if not callable(found):
            yield f"it has no method {method}({', '.join(expected)})"
        elif not _accepts(found, expected):
            yield f"{method} cannot be called as {method}({', '.join(expected)})"


def _methods() -> Iterator[tuple[str, Callable[..., object]]]:
    for name, member in vars(Policy).items():
        if not name.startswith("_") and callable(member):
            yield name, member


def _accepts(method: Callable[..., object], arguments: list[str]) -> bool:
    try:
        signature(method).bind(*arguments)
    except TypeError:
        return False
    except ValueError:
        return True  # a method written in C tells no signature
    return True


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
