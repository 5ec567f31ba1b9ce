"""Packages that are imported but never used: whatever is asked of them is there, and says what is missing when called.

SGLang imports kernels for GPUs and image transforms when it starts, on a CPU with a text model too. A call of any of them
is an error that names it, so that nothing is computed wrongly in silence. It must not know what the packages are for.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn


class Absent:
    """Something of a package that is not installed: it can be imported, passed on and inherited from, not called."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> "Absent":
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise RuntimeError(
            f"{self._name} is not installed here: this environment serves text models on a CPU"
        )

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __or__(self, other: object) -> Any:
        return Any  # in annotations


class AbsentModule(ModuleType):
    """A module of such a package."""

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")


class _Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module below one package."""

    def __init__(self, package: str) -> None:
        self._below = f"{package}."

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(self._below):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is inside."""


def stand_in(package: ModuleType) -> None:
    """Let `package`, which is being imported, and all below it be absent."""
    package.__class__ = AbsentModule
    package.__path__ = []
    sys.meta_path.insert(0, _Modules(package.__name__))
