#!/usr/bin/env bash
# Makes librdkafka available to the build.
#
# Where the system has a recent librdkafka there is nothing to do. Older ones (Debian 12 has 2.0.2) cannot
# authenticate with SCRAM to current Kafka, so there a pinned version is built from source, once, as a static
# library into the cache. The caller points PKG_CONFIG_PATH at it.
#
# Usage: tools/librdkafka.sh [--check] CACHE_FOLDER
# Prints the folder to add to PKG_CONFIG_PATH, or nothing when the system's library will do.
# With --check it builds nothing: it fails where it would have to.
set -euo pipefail

minimum=2.6.1
version=2.15.1

# The complete sources travel inside the npm package of Confluent's client for JavaScript.
npm_package=@confluentinc/kafka-javascript@1.10.1
npm_sha256=ada7d703bb1d3237e2292bfabf438d663b6160c9f1ac2a2406b5dc4257c81b66

check=false
if [[ ${1:-} == --check ]]; then
    check=true
    shift
fi
cache=${1:?usage: tools/librdkafka.sh [--check] CACHE_FOLDER}
prefix=$cache/librdkafka-$version

fail() { echo "librdkafka: $*" >&2; exit 1; }

if pkg-config --exists "rdkafka >= $minimum"; then
    exit 0
fi
if [[ -f $prefix/lib/pkgconfig/rdkafka.pc ]]; then
    echo "$prefix/lib/pkgconfig"
    exit 0
fi

! $check || exit 1

echo "building librdkafka $version into $prefix (once, about a minute)" >&2
mkdir -p "$cache"
work=$(mktemp -d "$cache/librdkafka.XXXXXX")
trap 'rm -rf "$work"' EXIT
log=$work/build.log

# Everything but the result goes to the log, whose end is shown on failure.
step() {
    "$@" >>"$log" 2>&1 || { tail -n 30 "$log" >&2; fail "failed: $*"; }
}

cd "$work"
step npm pack --silent "$npm_package"
tarball=$(echo ./*.tgz)
echo "$npm_sha256  $tarball" | sha256sum --check --quiet >&2 || fail "$npm_package is not the file we know"
tar -xzf "$tarball" --strip-components=3 package/deps/librdkafka

# Where a library is missing, configure only leaves the feature out: look at what it decided.
# It also insists on a C++ compiler, for a library that is not built here: any compiler's name will do.
step env CXX=cc ./configure --disable-gssapi --disable-curl --disable-lz4-ext --disable-syslog \
                            --enable-ssl --enable-zlib --enable-zstd --enable-static
for feature in WITH_SSL WITH_ZLIB WITH_ZSTD WITH_SASL_SCRAM; do
    grep -q "^#define $feature 1" config.h || fail "configured without $feature: is a -dev package missing?"
done
step make -C src -j"$(nproc)" librdkafka.a

mkdir -p out/lib/pkgconfig out/include/librdkafka
cp src/librdkafka.a out/lib/
cp src/rdkafka.h src/rdkafka_mock.h out/include/librdkafka/
cp LICENSE out/
cat >out/lib/pkgconfig/rdkafka.pc <<PC
prefix=$prefix
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: librdkafka
Description: Apache Kafka client library (static)
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -lrdkafka -lssl -lcrypto -lz -lzstd -lpthread -ldl -lm
PC
rm -rf "$prefix"
mv out "$prefix"
echo "$prefix/lib/pkgconfig"
