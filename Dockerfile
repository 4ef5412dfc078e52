# An official vLLM image with the overlay on top, in one small layer. docs/images.md tells how to
# use it. As it stands it takes the wheel from dist/ (`ci/build` puts it there) and fetches nothing:
#
#   docker build -t vllm-nemo:0.33.0.1 .
#   docker build --build-arg VLLM_RELEASE=0.27.1 -t vllm-nemo:0.27.1.1 .
#   docker build --build-arg WHEEL=source -t vllm-nemo:0.33.0.1 .    # builds the wheel as well

# The base must be the release that the wheel is for; nothing else gets through the last step.
ARG VLLM_RELEASE=0.33.0
ARG OVERLAY_REVISION=1
ARG BASE_IMAGE=vllm/vllm-openai:v${VLLM_RELEASE}
# Where the wheel comes from: the stage "dist" or the stage "source".
ARG WHEEL=dist
# Pin it for builds that are to be repeated: --build-arg BUILDER_IMAGE=python@sha256:...
ARG BUILDER_IMAGE=python:3.12-slim

FROM scratch AS dist
ARG VLLM_RELEASE
ARG OVERLAY_REVISION
COPY dist/vllm_nemo-${VLLM_RELEASE}.${OVERLAY_REVISION}-py3-none-any.whl /

# Fetches what it reads of the base's wheel, and the build's requirements. A pip.conf given as the
# secret "pip" names another index or certificate, and stays out of every layer.
FROM ${BUILDER_IMAGE} AS build
ARG VLLM_RELEASE
WORKDIR /src
COPY pyproject.toml LICENSE README.md ./
COPY build_hooks build_hooks
COPY overlay overlay
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    NRL_VLLM_BASE="${VLLM_RELEASE}" \
    python3 -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM scratch AS source
ARG VLLM_RELEASE
ARG OVERLAY_REVISION
COPY --from=build /wheels/vllm_nemo-${VLLM_RELEASE}.${OVERLAY_REVISION}-py3-none-any.whl /

FROM ${WHEEL} AS wheel

# User, entry point, command and working directory stay those of the base.
FROM ${BASE_IMAGE} AS image
ARG BASE_IMAGE
ARG VLLM_RELEASE
ARG OVERLAY_REVISION
# Of this repository: its commit and address. Empty rather than the base's, which are vLLM's.
ARG SOURCE_REVISION=""
ARG SOURCE_URL=""
# The label "sbom" holds a link's name: where the link leads depends on the base's Python.
LABEL org.opencontainers.image.title="vLLM with vllm-nemo" \
      org.opencontainers.image.description="vLLM ${VLLM_RELEASE} and the vllm-nemo overlay" \
      org.opencontainers.image.version="${VLLM_RELEASE}.${OVERLAY_REVISION}" \
      org.opencontainers.image.revision="${SOURCE_REVISION}" \
      org.opencontainers.image.source="${SOURCE_URL}" \
      org.opencontainers.image.url="${SOURCE_URL}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}" \
      vllm-nemo.vllm="${VLLM_RELEASE}" \
      vllm-nemo.version="${VLLM_RELEASE}.${OVERLAY_REVISION}" \
      vllm-nemo.revision="${OVERLAY_REVISION}" \
      vllm-nemo.sbom="/usr/share/vllm-nemo/vllm-nemo.cdx.json"
# The mount keeps the wheel itself out of the image; at a path that no base has, because buildah
# removes the mount point afterwards. The interpreter is the one that has vLLM: that
# of the `vllm` command, or else the first on PATH that finds it. It may well be the system's, which
# pip and uv leave alone unless told. From "/", since a working directory with a vllm/ of its own
# would be found first. Bytecode is matched to its source by content, because builders and
# registries set times; the served modules are left out, whose bytecode is checked in another way
# (docs/images.md has the cost). Nothing else may write bytecode into the base's directories.
# hadolint ignore=DL3003
RUN --mount=type=bind,from=wheel,target=/vllm-nemo-wheel \
    set -eu; umask 022; cd /; \
    export PYTHONDONTWRITEBYTECODE=1 PIP_ROOT_USER_ACTION=ignore; \
    export PIP_BREAK_SYSTEM_PACKAGES=1 UV_BREAK_SYSTEM_PACKAGES=1; \
    for python in "$(sed -n '1s/^#! *//p' "$(command -v vllm)" 2>/dev/null)" python3 python ""; do \
        NRL_VLLM_OVERLAY=off "$python" -c \
            'import sys; from importlib.util import find_spec; sys.exit(not find_spec("vllm"))' \
            2>/dev/null && break; \
    done; \
    [ -n "$python" ] || { echo "error: no Python of this base has vLLM" >&2; exit 1; }; \
    version="${VLLM_RELEASE}.${OVERLAY_REVISION}"; wheel="vllm-nemo==$version"; \
    if "$python" -m pip --version; then \
        "$python" -m pip install --no-user --no-cache-dir --no-compile --no-deps \
            --force-reinstall --no-index --find-links /vllm-nemo-wheel "$wheel"; \
    elif uv --version; then \
        uv pip install --python "$python" --no-cache --offline --no-deps \
            --reinstall --no-index --find-links /vllm-nemo-wheel "$wheel"; \
    else \
        echo "error: $python has no pip, and there is no uv on PATH" >&2; exit 1; \
    fi; \
    package=$("$python" -c 'import vllm_nemo; print(*vllm_nemo.__path__)'); \
    "$python" -m compileall -q --invalidation-mode checked-hash -x /_modules/ "$package"; \
    mkdir -p /usr/share/vllm-nemo; \
    ln -sf "$package-$version.dist-info/sboms/vllm-nemo.cdx.json" /usr/share/vllm-nemo/; \
    test -r /usr/share/vllm-nemo/vllm-nemo.cdx.json; \
    "$python" -m vllm_nemo doctor; \
    "$python" -m vllm_nemo verify
