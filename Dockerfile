# The images of accelbind, all from one base, for amd64 and arm64 alike:
#
#   docker build --target webhook --tag accelbind-webhook .
#   targets: webhook, plugin, certs, hook-installer
#
# BASE is any Debian or Ubuntu with Python 3.11 or newer and its venv module. It is the only image that
# is pulled. Its default is pinned by the digest of its index, which has both architectures; the compose
# file and ci.yml name the same. Python packages are installed from the lock files, by hash. BuildKit is
# not needed.
ARG BASE=python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

# --- The build stage, the only one with pip --------------------------------------------------------
FROM $BASE AS build
# Your own package index, if you have one.
ARG PIP_INDEX_URL
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
RUN python3 -m venv /build/venv && python3 -m venv --without-pip /opt/accelbind
COPY requirements.lock requirements-dev.lock ./
COPY tools/image/pick_lock.py tools/image/
RUN /build/venv/bin/pip --quiet --python /opt/accelbind/bin/python install \
        --no-compile --only-binary :all: --no-deps --require-hashes \
        --requirement requirements.lock
RUN python3 tools/image/pick_lock.py requirements-dev.lock hatchling >build.lock \
    && /build/venv/bin/pip --quiet install --only-binary :all: --no-deps --require-hashes \
        --requirement build.lock
COPY . .
RUN /build/venv/bin/pip --quiet wheel --no-deps --no-build-isolation --wheel-dir wheels . \
    && /build/venv/bin/pip --quiet --python /opt/accelbind/bin/python install --no-compile \
        --no-deps wheels/*.whl \
    && find /opt/accelbind/bin ! -type d ! -name 'accelbind*' ! -name 'python*' -delete \
    && /opt/accelbind/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash \
        /opt/accelbind/lib \
    && install -D -m 0444 tools/image/health.py /opt/accelbind/share/health.py \
    && /opt/accelbind/bin/python tools/image/sbom.py requirements.lock \
        >/opt/accelbind/share/sbom.cdx.json

# The same without the packages that only the plugin and the stand-ins import.
FROM build AS lean
RUN /build/venv/bin/pip --quiet --python /opt/accelbind/bin/python uninstall --yes \
        grpcio protobuf \
    && /opt/accelbind/bin/python tools/image/sbom.py requirements.lock \
        >/opt/accelbind/share/sbom.cdx.json

# --- The runtime: the base without pip, and accelbind -----------------------------------------------
FROM $BASE AS runtime
RUN python3 -c "import site, sysconfig; print(sysconfig.get_path('stdlib'), *site.getsitepackages())" \
    | tr ' ' '\n' | while read -r folder; do \
        rm -rf "$folder/ensurepip" "$folder"/pip "$folder"/pip-* "$folder"/setuptools* \
            "$folder"/wheel "$folder"/wheel-* "$folder"/_distutils_hack \
            "$folder"/distutils-precedence.pth; \
    done \
    && rm -rf /usr/bin/pip* /usr/local/bin/pip* /usr/bin/wheel /usr/local/bin/wheel \
        /usr/share/python-wheels \
    && echo 'accelbind:x:65532:65532:accelbind:/:/usr/sbin/nologin' >>/etc/passwd \
    && echo 'accelbind:x:65532:' >>/etc/group \
    && install -d -o 65532 -g 65532 /tls /cluster /node-af /node-region
ARG BASE
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG SOURCE
LABEL org.opencontainers.image.vendor="accelbind" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.source="$SOURCE" \
      org.opencontainers.image.base.name="$BASE" \
      dev.accelbind.sbom="/opt/accelbind/share/sbom.cdx.json"
ENV PATH=/opt/accelbind/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /

FROM runtime AS plugin
LABEL org.opencontainers.image.title="accelbind-plugin" \
      org.opencontainers.image.description="Device plugin and DRA driver: serve the accelerators of a node"
COPY --from=build /opt/accelbind /opt/accelbind
EXPOSE 9102
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-I", "/opt/accelbind/share/health.py", "9102"]
ENTRYPOINT ["accelbind"]
CMD ["plugin"]

FROM runtime AS webhook
LABEL org.opencontainers.image.title="accelbind-webhook" \
      org.opencontainers.image.description="Admission webhook: accelerators by name on Kubernetes"
COPY --from=lean /opt/accelbind /opt/accelbind
EXPOSE 8443 9101
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-I", "/opt/accelbind/share/health.py", "9101"]
ENTRYPOINT ["accelbind"]
CMD ["webhook"]

FROM runtime AS certs
LABEL org.opencontainers.image.title="accelbind-certs" \
      org.opencontainers.image.description="The webhook's certificates, issued and renewed"
COPY --from=lean /opt/accelbind /opt/accelbind
EXPOSE 9103
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-I", "/opt/accelbind/share/health.py", "9103"]
ENTRYPOINT ["accelbind"]
CMD ["certs", "--help"]

# --- The OCI hook: a folder with its own Python, which its image copies to the host -----------------
FROM build AS hook
# Debian has Python's shared library in a separate package, and PyInstaller includes it. So the SBOM lists
# it, and PyInstaller, whose loader is in the hook, but not the tools of the build.
RUN cp /var/lib/dpkg/status hook.status \
    && apt-get update -qq \
    && case "$(readlink -f "$(command -v python3)")" in \
        /usr/bin/*) library="lib$(basename "$(readlink -f /usr/bin/python3)")" ;; \
        *) library= ;; \
    esac \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends \
        binutils make $library >/dev/null \
    && if [ -n "$library" ]; then dpkg --status $library >>hook.status; fi
RUN python3 tools/image/pick_lock.py requirements-dev.lock pyinstaller >hook.lock \
    && /build/venv/bin/pip --quiet install --only-binary :all: --no-deps --require-hashes \
        --requirement hook.lock
RUN make hook PYINSTALLER=/build/venv/bin/pyinstaller HOOK_DIR=/build/dist \
    && install -D -m 0444 tools/image/install_hook.py share/install_hook.py \
    && cp hook.status /var/lib/dpkg/status \
    && PYTHONPATH="$(echo /build/venv/lib/python3*/site-packages)" /opt/accelbind/bin/python \
        tools/image/sbom.py requirements-dev.lock accelbind pyinstaller >share/sbom.cdx.json

FROM runtime AS hook-installer
LABEL org.opencontainers.image.title="accelbind-hook-installer" \
      org.opencontainers.image.description="Installs the OCI hook on a host, whose /opt/accelbind is at /host"
COPY --from=hook /build/dist/accelbind-hook /opt/accelbind/hook
COPY --from=hook /build/share /opt/accelbind/share
# It exits when it is done.
HEALTHCHECK NONE
ENTRYPOINT ["python3", "-I", "/opt/accelbind/share/install_hook.py"]
CMD ["/opt/accelbind/hook", "/host/hook"]
