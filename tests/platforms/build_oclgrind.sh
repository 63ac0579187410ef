#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds Oclgrind 26.03.1 with the repairs of oclgrind.patch and installs it: build_oclgrind.sh FOLDER [CMAKE OPTION...]
# Debian 12 needs: apt install git cmake g++ pkg-config python3 zlib1g-dev libzstd-dev llvm-19-dev libclang-19-dev libpolly-19-dev clang-19
set -eu
folder=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
git clone --quiet --depth 1 --branch v26.03.1 https://github.com/jrprice/Oclgrind.git "$folder/source"
git -C "$folder/source" apply --unidiff-zero "$here/oclgrind.patch"
cmake -S "$folder/source" -B "$folder/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$folder" \
    -DCMAKE_INSTALL_RPATH='$ORIGIN' "$@"
cmake --build "$folder/build" --target install --parallel
