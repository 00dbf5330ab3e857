# A server. Build it in a checkout, from the wheel:
#   make wheel && docker build -f deploy/server.Dockerfile -t prismfl-server .
# The digest decides which base it is, the tag is for people. Another one: --build-arg BASE=python@sha256:...
ARG BASE=python:3.11.9-slim-bookworm@sha256:8fb099199b9f2d70342674bd9dbccd3ed03a258f26bbd1d556822c6dfc60c317
FROM ${BASE} AS build
WORKDIR /build
COPY constraints.txt dist/*.whl ./
RUN python -m venv /opt/prismfl \
 && /opt/prismfl/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt torch==2.13.0 \
 && /opt/prismfl/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt "$(ls ./*.whl)[flower]"

FROM ${BASE}
COPY --from=build /opt/prismfl /opt/prismfl
RUN groupadd --gid 10001 prismfl && useradd --uid 10001 --gid 10001 --home-dir /state --shell /usr/sbin/nologin prismfl \
 && install -d -o 10001 -g 10001 -m 0700 /state
USER 10001:10001
ENV PATH=/opt/prismfl/bin:$PATH HOME=/state MPLCONFIGDIR=/tmp OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE \
    PYTHONDONTWRITEBYTECODE=1
VOLUME /state
WORKDIR /state
EXPOSE 9092
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=60s --timeout=20s --start-period=120s CMD ["python", "-c", \
    "import sys; from pathlib import Path; from prismfl.transport.flower.children import pid_of; sys.exit(pid_of(Path('/state/server/server.pid')) is None)"]
ENTRYPOINT ["prismfl"]
CMD ["--help"]
