# A real source tree of 2,600 files (musl): unpacked, configured, built, installed and used in the
# volume, while the native mount compares. Sourced by tests/kernels.sh.

# Checksums of all files, targets of links.
sums() { echo "cd '$1' && find . -type f -print0 | sort -z | xargs -0 sha256sum &&
    find . -type l -printf '%p %l\n' | sort"; }
same_tree() { # same_tree
    next_look
    at 900 "$(sums "$there/$tree_name")" > "$WORK/there.sums" || return 1
    bash -c "$(sums "$here_at/$tree_name")" > "$WORK/here.sums" || return 2
    cmp "$WORK/there.sums" "$WORK/here.sums" && [ "$(wc -l < "$WORK/here.sums")" -gt 2000 ]
}
unpacked_alike() {
    bash -c "$(sums "$WORK/unpacked/$tree_name")" | cmp - "$WORK/here.sums"
}

make_there() { # make_there ARGUMENT...
    at 3000 "cd '$there/$tree_name' && { make $* > /tmp/make.log 2>&1 || {
        tail -n 5 /tmp/make.log | cut -c 1-300; exit 1; }; }"
}

# Builds all of it, and a program with it.
whole_tree() {
    local archiver=
    # The FUSE program opens at most some 1,000 files, and libc.a has more.
    echo 'archive=$2; shift 2; printf "%s\n" "$@" | xargs -n 100 ar r "$archive"' \
        > "$here_at/$tree_name/archive"
    [ "$client" != fuse ] || archiver="AR='sh ./archive'"
    next_look
    check "it is built" make_there -j2 $archiver || return 1
    [ "$client" = fuse ] || check "and installed" make_there install
    cat > "$here_at/$tree_name/test.c" << 'C'
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(void) {
    int numbers[] = {3, 1, 2};
    regex_t pattern;
    char text[40];
    qsort(numbers, 3, sizeof *numbers, compare);
    if (regcomp(&pattern, "^a+b$", REG_EXTENDED) || regexec(&pattern, "aaab", 0, 0, 0)) return 1;
    snprintf(text, sizeof text, "%d%d%d %.3f %s", numbers[0], numbers[1], numbers[2],
        strtod("2.5", 0), strstr("of musl", "musl"));
    return puts(text) < 0 || strcmp(text, "123 2.500 musl");
}
C
    next_look
    if [ "$client" = fuse ]; then
        check "a program is built with it" at 120 "cd '$there/$tree_name' &&
            gcc -nostdinc -nostdlib -static -fno-stack-protector -I include -I obj/include \
            -I arch/x86_64 -I arch/generic -o tested lib/crt1.o lib/crti.o test.c lib/libc.a \
            \$(gcc -print-libgcc-file-name) lib/crtn.o"
        next_look
        chmod 755 "$here_at/$tree_name/tested"
        next_look
    else
        check "a program is built with it" at 120 "cd '$there/$tree_name' &&
            made/bin/musl-gcc -static -o tested test.c"
        next_look
    fi
    check "it works" says "123 2.500 musl" 0 at 60 "'$there/$tree_name/tested'"
    check "on the mount, too" says "123 2.500 musl" 0 within 20 "$here_at/$tree_name/tested"
}

tree() {
    local archive started=$SECONDS
    archive=$(fetch_source musl) || { skip "musl: no network?"; return; }
    mkdir -p "$WORK/unpacked" && tar -xf "$archive" -C "$WORK/unpacked"
    tree_name=$(ls "$WORK/unpacked")
    # Owners are an administrator's to set. The FUSE program sets no times, and its caller, who has
    # no token, no modes: so programs are not made executable.
    local unpack=--no-same-owner configure='--prefix=$PWD/made'
    [ "$client" != fuse ] || unpack+=" --touch --no-same-permissions" configure=--disable-wrapper
    check "a tree is unpacked" at 900 "tar $unpack -xf '$archive' -C '$there'" || return
    check "its files are the same for the mount" same_tree
    check "and those of the archive" unpacked_alike
    note "unpacked and compared after $((SECONDS - started)) s"
    check "it is configured" at 900 "cd '$there/$tree_name' && mkdir made &&
        sh ./configure --disable-shared --disable-optimize $configure" || return
    if [ $QUICK = yes ]; then
        check "a part of it is built" make_there -j2 \
            '$(ls src/string/*.c src/stdlib/*.c | sed "s|.*|obj/&|; s|c$|lo|")'
    else
        whole_tree || return
    fi
    note "built after $((SECONDS - started)) s"
    check "all files are the same for the mount" same_tree
    check "the tree is removed" at 900 "rm -r '$there/$tree_name'"
    next_look
    check "also for the mount" [ ! -e "$here_at/$tree_name" ]
    note "the tree took $((SECONDS - started)) s"
}
