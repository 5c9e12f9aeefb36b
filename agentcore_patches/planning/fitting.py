"""Find the release whose edits fit an unsupported SGLang."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from agentcore_patches.errors import SourceConflict
from agentcore_patches.planning.plan import Plan, make_plan
from agentcore_patches.planning.selection import Selection


def fitting_release(
    patches: Sequence[str],
    releases: Sequence[str],
    sources: Callable[[Iterable[str]], Mapping[str, bytes]],
    read: Callable[[str], bytes | None],
    *,
    version: str = "",
    closest: str = "",
) -> Selection:
    """Return patches for the newest of the releases whose edits fit.

    All releases that fit produce the same files from this SGLang.

    The edits of one release are tried together: edits of two releases were never combined.

    Args:
        sources: returns the original texts of files, without missing files.
        read: returns the text of any file of the install; None if it is missing.
        version: the install's.
        closest: the release whose refusal an error gives; by default the newest.

    Raises:
        SourceConflict: none fits, or two fit that produce different files.
    """
    plans: dict[Selection, Plan] = {}
    reasons: dict[str, str] = {}
    for release in reversed(releases):
        selection = Selection(tuple(patches), release)
        try:
            texts = sources(selection.files)
            plans[selection] = make_plan(texts, selection, read)
        except SourceConflict as refusal:
            reasons[release] = refusal.message
    if not plans:
        closest = closest or releases[-1]
        this = f"SGLang {version}" if version else "this SGLang"
        raise SourceConflict(
            f"The edits of no supported release fit {this}. Those of {closest}, the "
            f"closest, miss this: {reasons[closest]}",
            hint=f"Install a supported SGLang ({releases[0]} to {releases[-1]}, for "
            f"example `pip install sglang=={releases[-1]}`), or an agentcore-patch that "
            f"supports {this}.",
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
                f"The edits of SGLang {chosen.release} and those of {other.release} both "
                "fit this one, and make different files of it: "
                f"{', '.join(sorted(files))}. Nothing was written.",
                hint="Install a supported release.",
            )
    return chosen
