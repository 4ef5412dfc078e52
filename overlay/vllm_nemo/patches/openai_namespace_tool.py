"""vLLM's server on ``openai`` clients older than 2.25 (patch ``openai-namespace-tool``).

vLLM 0.25 to 0.29 require ``openai>=2.0.0``, but use two things that are new in 2.25.0: the class
``openai.types.responses.NamespaceTool``, whose import fails, and the field ``namespace`` of a
function call, without which a request fails (vllm-project/vllm#49103). Since 0.30 vLLM requires
2.25.0 itself, and an older client is there only by force. NeMo-Gym pinned ``openai<=2.7.2``.
With a client that has both, the functions here do what vLLM does without them.
"""

from __future__ import annotations

import functools
import typing

# The first client with everything that vLLM 0.25 to 0.33 use.
COMPLETE = "2.25.0"


class AbsentNamespaceTool:
    """Stands for ``NamespaceTool`` where the client has none. It has no instances."""

    def __init__(self) -> None:
        raise TypeError(
            f"openai {_installed()} has no NamespaceTool; {COMPLETE} is the first with it"
        )


def namespace_tool() -> type:
    """Return the client's ``NamespaceTool``, or ``AbsentNamespaceTool`` if it has none."""
    from openai.types import responses

    return typing.cast("type", getattr(responses, "NamespaceTool", AbsentNamespaceTool))


def namespace_of(call: object) -> str | None:
    """Return the namespace of a function call.

    Older clients do not declare the field, but keep it if a request has it.

    Args:
        call: A ``ResponseFunctionToolCall``.

    Returns:
        The namespace; None if the call has none.
    """
    return getattr(call, "namespace", None)


def refuse_unknown_tools(request: object) -> None:
    """Refuse a Responses request with a type of tool that the installed client cannot express.

    Without this, pydantic answers with a list of every tool that it did not match. It still does
    on clients that have ``NamespaceTool``.

    Args:
        request: The request as it came, a dictionary. What is not well-formed is left to pydantic.

    Raises:
        vllm.exceptions.VLLMValidationError: (HTTP 400) naming the tool, the client, and the client
            release to install.
    """
    tools = request.get("tools") if isinstance(request, dict) else None
    if not isinstance(tools, list) or namespace_tool() is not AbsentNamespaceTool:
        return
    for index, tool in enumerate(tools):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if isinstance(kind, str) and kind not in known_tools():
            from vllm.exceptions import VLLMValidationError

            raise VLLMValidationError(
                f"tools[{index}] has the type '{kind}', which openai {_installed()}, the client "
                "library of this server, does not know. It knows: "
                f"{', '.join(sorted(known_tools()))}. Leave the tool out, or install "
                f"openai>={COMPLETE} on the server.",
                parameter=f"tools[{index}].type",
                value=kind,
            )


@functools.cache
def known_tools() -> frozenset[str]:
    """Return the values of ``type`` in the client's union of Responses tools."""
    from openai.types.responses.tool import Tool

    found: set[str] = set()
    for member in _members(Tool):
        field = getattr(member, "model_fields", {}).get("type")
        found.update(typing.get_args(getattr(field, "annotation", None)))
    return frozenset(found)


def _members(annotation: object) -> typing.Iterator[type]:
    if isinstance(annotation, type):
        yield annotation
        return
    arguments = typing.get_args(annotation)
    # Annotated[Union[...], ...]: only the first argument is a type.
    if hasattr(annotation, "__metadata__"):
        arguments = arguments[:1]
    for argument in arguments:
        yield from _members(argument)


def _installed() -> str:
    from openai import __version__

    return str(__version__)
