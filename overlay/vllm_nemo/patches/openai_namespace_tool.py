"""vLLM's OpenAI-compatible server on ``openai`` clients older than 2.25.

vLLM 0.25 to 0.29 declare ``openai>=2.0.0`` and use two things that came with 2.25.0: the class
``openai.types.responses.NamespaceTool``, whose import fails, and the field ``namespace`` of a
function call, whose absence fails a request. NeMo-Gym pins ``openai<=2.7.2``. With a client that
has both, every function here does what the code did that calls it.
"""

from __future__ import annotations

import functools
import typing

# The first client with everything that vLLM 0.25 to 0.29 use.
COMPLETE = "2.25.0"


class AbsentNamespaceTool:
    """What stands for ``NamespaceTool`` where the client has none; nothing is an instance of it."""

    def __init__(self) -> None:
        raise TypeError(
            f"openai {_installed()} has no NamespaceTool; {COMPLETE} is the first with it"
        )


def namespace_tool() -> type:
    """Return the client's ``NamespaceTool``, or a class for ``isinstance`` that nothing is of."""
    from openai.types import responses

    return typing.cast("type", getattr(responses, "NamespaceTool", AbsentNamespaceTool))


def namespace_of(call: object) -> str | None:
    """Return the namespace of a ``ResponseFunctionToolCall``; older clients have no such field.

    They keep what a request brings in spite of that, so a namespace that was sent is not lost.
    """
    return getattr(call, "namespace", None)


def refuse_unknown_tools(request: object) -> None:
    """Refuse a Responses request with a type of tool that the installed client cannot express.

    Without this pydantic answers, with a list of every tool that it did not match. Clients that
    have ``NamespaceTool`` are left to it.

    Raises ``vllm.exceptions.VLLMValidationError`` (HTTP 400), which names the tool, the client and
    the release that has it.
    """
    tools = request.get("tools") if isinstance(request, dict) else None
    if not isinstance(tools, list) or namespace_tool() is not AbsentNamespaceTool:
        return
    for index, tool in enumerate(tools):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if isinstance(kind, str) and kind not in known_tools():
            from vllm.exceptions import VLLMValidationError

            raise VLLMValidationError(
                f"tools[{index}] is of type '{kind}', which openai {_installed()}, the client "
                "library that this server runs on, does not know. It knows: "
                f"{', '.join(sorted(known_tools()))}. Leave the tool out, or install "
                f"openai>={COMPLETE} on the server.",
                parameter=f"tools[{index}].type",
                value=kind,
            )


@functools.cache
def known_tools() -> frozenset[str]:
    """Return the values of ``type`` that the client's union of Responses tools has."""
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
    # Annotated[Union[...], ...]: what follows the first argument is no type.
    if hasattr(annotation, "__metadata__"):
        arguments = arguments[:1]
    for argument in arguments:
        yield from _members(argument)


def _installed() -> str:
    from openai import __version__

    return str(__version__)
