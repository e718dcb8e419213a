#!/bin/sh
# check.sh CHECK - runs one check of the installed library. CMakeLists.txt sets the environment:
#
#   SOURCE BUILD PREFIX   folders: of the repository, of its build, and to install into
#   CC FLAGS              the compiler, and sanitizer flags with which the library was built
#   SOVERSION             the expected version of the soname
#
# Exit status 77 means skipped; the reason is printed.
set -eu
what=$1
work=$PREFIX-$what
warnings="-Wall -Wextra -Wshadow -Werror"
here=$SOURCE/tests/install

say() { echo "$what: $*"; }
fail() {
    say "$*" >&2
    exit 1
}
fresh_work() {
    rm -rf "$work"
    mkdir -p "$work"
    cd "$work"
}
libdir() { dirname "$(find "$PREFIX" -name 'libgradus.so' | head -n 1)"; }
pc() { PKG_CONFIG_PATH="$(libdir)/pkgconfig" pkg-config "$@" gradus; }
run() { LD_LIBRARY_PATH="$(libdir)" "$@" || fail "$* did not pass"; }
require() { command -v "$1" >/dev/null 2>&1 || { say "skipped: no $1 here"; exit 77; }; }

# Installs the library into an empty prefix.
install_prefix() {
    rm -rf "$PREFIX"
    DESTDIR='' cmake --install "$BUILD" --prefix "$PREFIX" >/dev/null
    for file in gradus.h ops.h tensor.h; do
        [ -f "$PREFIX/include/gradus/$file" ] || fail "include/gradus/$file is not installed"
    done
    for name in libgradus.so libgradus.a pkgconfig/gradus.pc cmake/gradus/gradusConfig.cmake; do
        [ -f "$(libdir)/$name" ] || fail "$name is not installed"
    done
}

# Programs link to the library by its soname, so that they do not load an incompatible newer one.
soname() {
    wanted=libgradus.so.$SOVERSION
    [ -e "$(libdir)/$wanted" ] || fail "there is no $wanted"
    readelf -d "$(libdir)/libgradus.so" | grep -q "SONAME.*\[$wanted\]" || fail "the soname is not $wanted"
}

# The shared library exports the functions that the headers declare with GD_API, and nothing else.
symbols() {
    fresh_work
    cat "$PREFIX"/include/gradus/*.h | tr '\n' ' ' | sed 's/GD_API/\n&/g' |
        sed -n 's/^GD_API [^(;]*[ *]\(gd_[a-z0-9_]*\) *[(;].*/\1/p' | sort -u >declared
    nm -D --defined-only "$(libdir)/libgradus.so" | awk '{ print $3 }' | sort -u >exported
    # the sanitizers' own symbols are not ours
    grep -Ev '^(__asan|__odr_asan|__ubsan|__tsan|__lsan|__sanitizer)' exported >ours || true
    [ "$(wc -l <ours)" -gt 100 ] || fail "the list of symbols looks wrong"
    if ! diff declared ours; then fail "< declared but not exported; > exported but not declared"; fi
}

# The library does not contain paths of the build. Sanitizers add paths for their reports.
no_build_paths() {
    unless_sanitized
    for file in "$(libdir)/libgradus.so" "$(libdir)/libgradus.a"; do
        for folder in "$SOURCE" "$BUILD"; do
            if grep -qF "$folder" "$file"; then fail "$file names the folder $folder"; fi
        done
    done
}

pkgconfig() {
    require pkg-config
    fresh_work
    # shellcheck disable=SC2046,SC2086 # flags are lists of words
    $CC -std=gnu11 $warnings $FLAGS "$here/consumer.c" $(pc --cflags --libs) -o consumer
    run ./consumer
}

static() {
    require pkg-config
    fresh_work
    archive=$(libdir)/libgradus.a
    # shellcheck disable=SC2046,SC2086
    $CC -std=gnu11 $warnings $FLAGS "$here/consumer.c" $(pc --cflags) "$archive" \
        $(pc --static --libs-only-l | sed 's/-lgradus//') -pthread -o consumer
    ./consumer || fail "the program did not pass"
}

# A program without any shared library, which needs what the libraries of images need themselves.
static_all() {
    require pkg-config
    unless_sanitized
    fresh_work
    echo 'int main(void) { return 0; }' >empty.c
    $CC -static empty.c -lm -o empty 2>/dev/null || { say "skipped: no static C library"; exit 77; }
    # shellcheck disable=SC2046
    $CC -std=gnu11 -static "$here/images.c" $(pc --cflags --static --libs) -o images 2>log ||
        { cat log; fail "the program does not link"; }
    ./images || fail "the program did not pass"
}

# The headers give no warning, also under -Wpedantic ...
pedantic() {
    compiler=$1
    require "$compiler"
    require pkg-config
    fresh_work
    # shellcheck disable=SC2046,SC2086
    "$compiler" -std=c11 $warnings -Wpedantic $2 -fsyntax-only "$here/consumer.c" $(pc --cflags)
    # ... and hide none about the arguments of a program
    count=$(grep -c 'WARNING ==' "$here/warnings.c")
    i=0
    while [ "$i" -lt "$count" ]; do
        # shellcheck disable=SC2046,SC2086
        if "$compiler" -std=gnu11 $warnings -Wconversion -DWARNING="$i" -fsyntax-only "$here/warnings.c" \
            $(pc --cflags) 2>log; then warned=no; else warned=yes; fi
        [ "$i" -ne 0 ] || [ "$warned" = no ] || { cat log; fail "a warning about right code"; }
        [ "$i" -eq 0 ] || grep -q 'warnings.c' log || fail "no warning about WARNING=$i"
        i=$((i + 1))
    done
}

# Calls of a source that a compiler must reject, without any flag for warnings: the first COUNT of
# them, or all. The last arguments are the numbers of mistakes with words of their messages.
mistakes() {
    compiler=$1
    standard=$2
    source=$here/$3
    count=$4
    shift 4
    require "$compiler"
    require pkg-config
    fresh_work
    [ "$count" != all ] || count=$(grep -c 'MISTAKE ==' "$source")
    # shellcheck disable=SC2046,SC2086
    "$compiler" $standard $warnings -DMISTAKE=0 -fsyntax-only "$source" $(pc --cflags) ||
        fail "the right calls do not compile"
    i=1
    while [ "$i" -le "$count" ]; do
        # shellcheck disable=SC2046,SC2086
        if "$compiler" $standard -DMISTAKE="$i" -fsyntax-only "$source" $(pc --cflags) 2>log; then
            fail "MISTAKE=$i compiles"
        fi
        i=$((i + 1))
    done
    # the messages name the mistake
    # shellcheck disable=SC2046,SC2086
    for word in "$@"; do
        "$compiler" $standard -DMISTAKE="${word%%:*}" -fsyntax-only "$source" $(pc --cflags) 2>log || true
        grep -q "${word#*:}" log || { cat log; fail "no '${word#*:}' in the messages"; }
    done
}

cmake_package() {
    fresh_work
    cmake -S "$here/package" -B . -DCMAKE_PREFIX_PATH="$PREFIX" -DCMAKE_C_COMPILER="$CC" \
        -DCMAKE_C_FLAGS="$warnings $FLAGS" >log || { cat log; fail "configure failed"; }
    cmake --build . >log 2>&1 || { cat log; fail "build failed"; }
    ./consumer && ./consumer_static || fail "the program did not pass"
}

# Compiles a program with another compiler than the one that built the library.
compiled_by() {
    compiler=$1
    standard=$2
    source=$3
    require "$compiler"
    require pkg-config
    fresh_work
    # A sanitized library needs the runtime of the compiler that built it, so check only headers.
    # shellcheck disable=SC2046,SC2086
    if [ -n "$FLAGS" ]; then
        "$compiler" "$standard" $warnings -fsyntax-only "$here/$source" $(pc --cflags)
    else
        "$compiler" "$standard" $warnings "$here/$source" $(pc --cflags --libs) -o consumer
        run ./consumer
    fi
}

# One program can include all headers, in C and in C++; also that of a backend, which defines the types that backend.h
# leaves to it.
headers() {
    require pkg-config
    fresh_work
    (cd "$PREFIX/include" && ls gradus/*.h) | sed 's/.*/#include <&>/' >all.h
    [ "$(wc -l <all.h)" -gt 40 ] || fail "the list of headers looks wrong"
    left="s/^typedef struct \(gd_[a-z_]*\) .*defined by the backend.*/struct \1 { int x; };/p"
    sed -n "$left" "$PREFIX/include/gradus/backend.h" >own.h
    [ "$(wc -l <own.h)" -ge 2 ] || fail "backend.h leaves no types to the backend"
    cat own.h >>all.h
    # shellcheck disable=SC2046,SC2086
    for language in "c -std=gnu11" "c++ -std=c++17"; do
        $CC $warnings -fsyntax-only $(pc --cflags) -x $language all.h || fail "not together: $language"
    done
}

# A library with a sanitizer must be linked, not opened: the sanitizer's runtime has to load first.
unless_sanitized() { [ -z "$FLAGS" ] || { say "skipped: the library is built with $FLAGS"; exit 77; }; }

dlopen_c() {
    unless_sanitized
    fresh_work
    # shellcheck disable=SC2086
    $CC -std=gnu11 $warnings "$here/plugin.c" -pthread -ldl -o plugin
    ./plugin "$(libdir)/libgradus.so" || fail "the library cannot be opened by dlopen"
    # initial-exec thread-local storage is scarce, and other libraries need it too
    size=$(readelf -lW "$(libdir)/libgradus.so" | awk '$1 == "TLS" { print $6 }')
    [ "$((size))" -le 256 ] || fail "its thread-local segment has $((size)) bytes; the limit is 256"
}

dlopen_python() {
    unless_sanitized
    require python3
    python3 -c 'import ctypes' 2>/dev/null || { say "skipped: this python3 has no ctypes"; exit 77; }
    python3 - "$(libdir)/libgradus.so" <<'PYTHON' || fail "Python cannot use the library"
import ctypes, sys
gradus = ctypes.CDLL(sys.argv[1])
gradus.gd_scalar_at.restype, gradus.gd_scalar_at.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_double]
gradus.gd_item_at.restype, gradus.gd_item_at.argtypes = ctypes.c_double, [ctypes.c_char_p, ctypes.c_void_p]
gradus.gd_release.argtypes = [ctypes.c_void_p]
t = gradus.gd_scalar_at(b"check.py", 2.5)
assert gradus.gd_item_at(b"check.py", t) == 2.5
gradus.gd_release(t)
PYTHON
}

# Backends that are installed with the library, and backends that fail to load.
backend() {
    require pkg-config
    fresh_work
    cmake --install "$BUILD" --prefix "$PREFIX" --component testing >/dev/null
    folder=$(libdir)/gradus
    [ -f "$folder/libgradus_test.so" ] || fail "libgradus_test.so is not installed"
    if readelf -d "$folder/libgradus_test.so" | grep -q "NEEDED.*libgradus"; then fail "the backend links Gradus"; fi
    echo "no library" >libgradus_text.so
    for fault in other older layout empty; do
        upper=$(echo $fault | tr '[:lower:]' '[:upper:]')
        # shellcheck disable=SC2046,SC2086
        $CC -std=gnu11 $warnings $FLAGS -fPIC -shared -D$upper -DKIND="\"$fault\"" "$here/bad_backend.c" \
            $(pc --cflags) -o libgradus_$fault.so
    done
    # shellcheck disable=SC2046,SC2086
    $CC -std=gnu11 $warnings $FLAGS "$here/backend.c" $(pc --cflags --libs) -o backend
    GRADUS_BACKEND_PATH=$work run ./backend
    # the generated suites on the installed device
    for family in elementwise reduce matmul index; do
        GRADUS_BACKEND_PATH=$folder "$BUILD/tests/test_ops" --suite modes --family $family ||
            fail "the suite modes of $family"
    done
}

case $what in
prefix) install_prefix ;;
soname | symbols | headers | pkgconfig | static) "$what" ;;
static-all) static_all ;;
pedantic-gcc) pedantic gcc "" ;;
pedantic-clang) pedantic clang -Wno-gnu-zero-variadic-macro-arguments ;;
mistakes-gcc) mistakes gcc -std=gnu11 mistakes.c all "1:positional initialization" 14:_Generic "21:positional initialization" ;;
mistakes-clang) mistakes clang -std=gnu11 mistakes.c 20 1:options_are_given_by_name "14:controlling expression" ;;
mistakes-*++) mistakes "${what#mistakes-}" "-std=c++20 -x c++" mistakes.c all 1:options_are_given_by_name "14:a gd_tensor \* or a number" ;;
mistakes17-*) mistakes "${what#mistakes17-}" -std=c++17 mistakes17.cpp all 1:options_need_cplusplus_20 ;;
cmake) cmake_package ;;
backend) backend ;;
no-build-paths) no_build_paths ;;
dlopen-c) dlopen_c ;;
dlopen-python) dlopen_python ;;
c-gcc) compiled_by gcc -std=gnu11 consumer.c ;;
c-clang) compiled_by clang -std=gnu11 consumer.c ;;
c++17-*) compiled_by "${what#c++17-}" -std=c++17 consumer.cpp ;;
c++20-*) compiled_by "${what#c++20-}" -std=c++20 consumer.cpp ;;
*) fail "no such check" ;;
esac
say "ok"
