# A site. Build it in a checkout, from the wheel:
#   make wheel && docker build -f deploy/site.Dockerfile -t prismfl-site .
# The digest decides which base it is, the tag is for people. Another one: --build-arg BASE=python@sha256:...
ARG BASE=python:3.11.9-slim-bookworm@sha256:8fb099199b9f2d70342674bd9dbccd3ed03a258f26bbd1d556822c6dfc60c317
FROM ${BASE} AS build
WORKDIR /build
COPY constraints.txt dist/*.whl ./
RUN python -m venv /opt/prismfl \
 && /opt/prismfl/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt torch==2.13.0 \
 && /opt/prismfl/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt "$(ls ./*.whl)[flower,parquet]"

FROM ${BASE}
# Nothing of pip's work but what was installed; a user without a shell; all state in one volume. A new volume has the
# owner of the folder that it is mounted on: /fed is for the trial of compose.yml, which founds on all four at once.
COPY --from=build /opt/prismfl /opt/prismfl
RUN groupadd --gid 10001 prismfl && useradd --uid 10001 --gid 10001 --home-dir /state --shell /usr/sbin/nologin prismfl \
 && install -d -o 10001 -g 10001 -m 0700 /state /fed /fed/server /fed/north /fed/south /fed/west
USER 10001:10001
ENV PATH=/opt/prismfl/bin:$PATH HOME=/state PRISMFL_LEDGER=/state/ledger MPLCONFIGDIR=/tmp OMP_NUM_THREADS=1 \
    OMP_WAIT_POLICY=PASSIVE PYTHONDONTWRITEBYTECODE=1
VOLUME /state
WORKDIR /state
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=60s --timeout=20s --start-period=120s CMD ["python", "-c", \
    "import sys; from pathlib import Path; from prismfl.transport.flower.children import pid_of; sys.exit(pid_of(Path('/state/site/site.pid')) is None)"]
ENTRYPOINT ["prismfl"]
CMD ["--help"]
