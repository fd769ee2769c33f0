#!/usr/bin/env bash
# Makes hiredis with TLS available to the build.
#
# Where the system has hiredis 1.0 or newer there is nothing to do. Older ones (Debian 12 has 0.14.1) have no TLS, so
# there a pinned version is built from source, once, as a static library into the cache. The caller points
# PKG_CONFIG_PATH at it.
#
# Usage: tools/hiredis.sh [--check] CACHE_FOLDER
# Prints the folder to add to PKG_CONFIG_PATH, or nothing when the system's library will do.
# With --check it builds nothing: it fails where it would have to.
set -euo pipefail

version=1.5.0

# The complete sources travel inside the source distribution of Redis' own client for Python.
pypi_package=hiredis==3.5.0
pypi_sha256=c227592cc56b7df247abe4755c26723965be68972be2149fa441ac33d82131ba

check=false
if [[ ${1:-} == --check ]]; then
    check=true
    shift
fi
cache=${1:?usage: tools/hiredis.sh [--check] CACHE_FOLDER}
prefix=$cache/hiredis-$version

fail() { echo "hiredis: $*" >&2; exit 1; }

if pkg-config --exists "hiredis >= 1.0" "hiredis_ssl >= 1.0"; then
    exit 0
fi
if [[ -f $prefix/lib/pkgconfig/hiredis_ssl.pc ]]; then
    echo "$prefix/lib/pkgconfig"
    exit 0
fi

! $check || exit 1

echo "building hiredis $version into $prefix (once, a few seconds)" >&2
mkdir -p "$cache"
work=$(mktemp -d "$cache/hiredis.XXXXXX")
trap 'rm -rf "$work"' EXIT
log=$work/build.log

# Everything but the result goes to the log, whose end is shown on failure.
step() {
    "$@" >>"$log" 2>&1 || { tail -n 30 "$log" >&2; fail "failed: $*"; }
}

# A pip of its own: the system's may be missing, or may not be allowed to run. It knows the file by its checksum.
cd "$work"
step python3 -m venv pip
echo "$pypi_package --hash=sha256:$pypi_sha256" >requirements.txt
step pip/bin/pip download --disable-pip-version-check --no-deps --no-binary hiredis --require-hashes -r requirements.txt
mkdir source
tar -xzf ./hiredis-*.tar.gz --strip-components=1 -C source
cd source/vendor/hiredis

mkdir -p out/lib/pkgconfig out/include/hiredis objects
for file in alloc async hiredis net read sds sockcompat ssl; do
    step "${CC:-cc}" -std=c99 -O2 -g -fPIC -D_FILE_OFFSET_BITS=64 -c "$file.c" -o "objects/$file.o"
done
step ar rcs out/lib/libhiredis.a objects/{alloc,async,hiredis,net,read,sds,sockcompat}.o
step ar rcs out/lib/libhiredis_ssl.a objects/ssl.o
cp ./*.h out/include/hiredis/
cp COPYING out/

# pkgconfig NAME LIBRARIES REQUIRES
pkgconfig() {
    cat >"out/lib/pkgconfig/$1.pc" <<PC
prefix=$prefix
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: $1
Description: Redis client library (static)
Version: $version
Requires: $3
Cflags: -I\${includedir}
Libs: -L\${libdir} $2
PC
}
pkgconfig hiredis -lhiredis ""
pkgconfig hiredis_ssl "-lhiredis_ssl -lssl -lcrypto" hiredis
rm -rf "$prefix"
mv out "$prefix"
echo "$prefix/lib/pkgconfig"
