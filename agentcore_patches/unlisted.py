"""Which listed release's edits fit an SGLang that no listed release is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from agentcore_patches.errors import SourceConflict
from agentcore_patches.patches import registry
from agentcore_patches.plan import Plan, make_plan


def fitting_release(
    patches: Sequence[str],
    releases: Sequence[str],
    sources: Callable[[Iterable[str]], Mapping[str, bytes]],
    read: Callable[[str], bytes | None],
) -> str:
    """The newest of the releases whose edits fit; all that fit make the same files of it.

    The edits of a release are tried together, since only these ever stood together.

    Args:
        sources: gives the original texts of files; those that are absent are left out.
        read: gives the text of any file of the install; None if there is none.

    Raises:
        SourceConflict: none fits, or two that make different files of it.
    """
    plans: dict[str, Plan] = {}
    refusals: dict[str, SourceConflict] = {}
    for release in reversed(releases):
        try:
            texts = sources(registry.files(patches, release))
            plans[release] = make_plan(texts, patches, release, read)
        except SourceConflict as refusal:
            refusals[release] = refusal
    if not plans:
        newest = releases[-1]
        reason = str(refusals[newest]).partition(". Nothing was written")[0]
        raise SourceConflict(
            "No listed release has edits that all fit this SGLang. Those of "
            f"{newest}, the newest, do not: {reason}. Nothing was written. Install a "
            "listed release, or an agentcore-patch that lists this one."
        )
    (chosen, plan), *others = plans.items()
    for other, second in others:
        if second.files != plan.files:
            files = {
                path
                for path in {**plan.files, **second.files}
                if plan.files.get(path) != second.files.get(path)
            }
            raise SourceConflict(
                f"The edits of SGLang {chosen} and those of {other} both fit this one, "
                f"and make different files of it: {', '.join(sorted(files))}. Nothing was "
                "written. Install a listed release."
            )
    return chosen
