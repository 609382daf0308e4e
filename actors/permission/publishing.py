"""Commands that publish or deploy: what leaves the machine for other people, and what changes a running service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .commands import ShellCommand, subcommand

_ANY: Final = ("",)
_Rows = Mapping[str, tuple[str, ...]]

PUBLISH: Final[_Rows] = {
    "git": ("push", "send-email", "send-pack", "svn dcommit", "lfs push", "subtree push"),
    **dict.fromkeys(("hg", "jj", "sl"), ("push", "git push")),
    "svn": ("commit", "ci", "import"),
    "gh": ("release create", "release upload", "pr create", "pr merge", "repo create", "gist create", "workflow run"),
    "glab": ("release create", "release upload", "mr create", "mr merge", "repo create", "ci run"),
    **dict.fromkeys(
        ("npm", "pnpm", "yarn", "bun", "lerna", "deno", "jsr"),
        ("publish", "npm publish", "run publish", "run release", "deprecate", "unpublish", "dist-tag add"),
    ),
    **dict.fromkeys(("poetry", "uv", "hatch", "flit", "pdm", "rye", "cargo", "pub", "dart", "mix"), ("publish",)),
    "mix": ("hex.publish",),
    "maturin": ("publish", "upload"),
    "twine": ("upload",),
    "setup.py": ("upload",),
    "gem": ("push", "yank"),
    "rake": ("release",),
    "helm": ("push",),
    **dict.fromkeys(
        ("docker", "podman", "nerdctl", "buildah"),
        ("push", "image push", "compose push", "manifest push", "build --push", "buildx build --push"),
    ),
    **dict.fromkeys(("skopeo", "crane", "oras"), ("copy", "push", "sync")),
    "dotnet": ("nuget push",),
    "nuget": ("push",),
    "mvn": ("deploy", "release:perform"),
    **dict.fromkeys(("gradle", "gradlew"), ("publish", "publishToMavenCentral")),
    "vsce": ("publish",),
    "ovsx": ("publish",),
    "semantic-release": _ANY,
    "goreleaser": ("release",),
    **dict.fromkeys(("make", "just", "task"), ("publish", "release", "upload")),
}
"""Program -> subcommands, with any options between; "" stands for the program alone, `--x` for a flag anywhere."""

DEPLOY: Final[_Rows] = {
    **dict.fromkeys(
        ("kubectl", "oc", "k", "microk8s"),
        (
            *("apply", "create", "delete", "replace", "patch", "edit", "set", "scale", "rollout", "run", "expose"),
            *("drain", "cordon", "taint", "label", "annotate", "autoscale", "kubectl apply", "new-app", "cp"),
        ),
    ),
    "helm": ("install", "upgrade", "uninstall", "delete", "rollback"),
    "helmfile": ("apply", "sync", "destroy"),
    **dict.fromkeys(("terraform", "tofu", "terragrunt"), ("apply", "destroy", "import", "run-all apply")),
    "pulumi": ("up", "update", "destroy", "refresh"),
    "ansible-playbook": _ANY,
    "ansible": _ANY,
    **dict.fromkeys(("serverless", "sls", "cdk", "sam", "copilot", "chalice", "zappa", "sst"), ("deploy", "remove")),
    "aws": ("deploy", "s3 cp", "s3 sync", "cloudformation deploy", "lambda update-function-code", "ecs update-service"),
    "gcloud": ("app deploy", "run deploy", "functions deploy", "beta run deploy", "builds submit", "deploy"),
    "az": ("webapp up", "webapp deploy", "functionapp deployment", "deployment", "containerapp up", "acr build"),
    **dict.fromkeys(("fly", "flyctl", "netlify", "wrangler", "firebase", "surge"), ("deploy", "publish")),
    **dict.fromkeys(("vercel", "now"), ("deploy", "--prod", "promote", "rollback")),
    "heroku": ("container:release", "releases:rollback", "run"),
    "eb": ("deploy",),
    "cap": ("deploy", "production"),
    "railway": ("up", "deploy"),
    "supabase": ("db push", "functions deploy"),
    "amplify": ("push", "publish"),
    "argocd": ("app sync", "app create"),
    "flux": ("reconcile", "create"),
    "skaffold": ("run", "deploy"),
    "nomad": ("job run", "run"),
    **dict.fromkeys(("docker", "podman"), ("stack deploy", "service update", "service create")),
    "kamal": ("deploy", "setup"),
    "dokku": _ANY,
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), ("run deploy", "deploy")),
    **dict.fromkeys(("make", "just", "task", "fab"), ("deploy",)),
}
"""As `PUBLISH`."""

_TABLE: Final = {
    program: tuple(
        (effect, tuple(verbs.split()))
        for effect, table in (("publish", PUBLISH), ("deploy", DEPLOY))
        for verbs in table.get(program, ())
    )
    for program in {**PUBLISH, **DEPLOY}
}


_CHECKS: Final = 4_000
"""Most comparisons of steps with the table for one command: some milliseconds."""


def effects_of(command: ShellCommand) -> frozenset[str]:
    """Return which of publish and deploy a command may do, by the table; both for a command of very many steps."""
    effects, checks = set[str](), 0
    for step in command.steps:
        rows = _TABLE.get(step.program, ())
        checks += len(rows)
        if checks > _CHECKS:
            return frozenset(("publish", "deploy"))
        effects.update(effect for effect, verbs in rows if subcommand(step, verbs))
    return frozenset(effects)
