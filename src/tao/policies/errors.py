"""Why there is no policy to be had. Messages say what is wrong and what to do."""


class UnknownPolicyError(ValueError):
    """No policy has this name; the message lists those that exist."""


class UnusablePolicyError(UnknownPolicyError):
    """A user's own policy (`module:Class`) cannot be imported, made or used."""
