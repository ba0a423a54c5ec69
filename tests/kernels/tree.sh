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

tree() {
    local archive started=$SECONDS
    archive=$(fetch_source musl) || { skip "musl: no network?"; return; }
    mkdir -p "$WORK/unpacked" && tar -xf "$archive" -C "$WORK/unpacked"
    tree_name=$(ls "$WORK/unpacked")
    check "a tree is unpacked" at 900 "tar -xf '$archive' -C '$there'" || return
    check "its files are the same for the mount" same_tree
    check "and those of the archive" unpacked_alike
    note "unpacked and compared after $((SECONDS - started)) s"
    check "it is configured" at 900 "cd '$there/$tree_name' && mkdir made &&
        ./configure --disable-shared --disable-optimize --prefix=\$PWD/made" || return
    check "built" at 3000 "cd '$there/$tree_name' && make -j2" || return
    check "and installed" at 900 "cd '$there/$tree_name' && make install"
    note "built after $((SECONDS - started)) s"
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
    check "a program of it works" says "123 2.500 musl" 0 at 120 "cd '$there/$tree_name' &&
        made/bin/musl-gcc -static -o tested test.c && ./tested"
    next_look
    check "on the mount, too" says "123 2.500 musl" 0 within 20 "$here_at/$tree_name/tested"
    check "all files are the same for the mount" same_tree
    check "the tree is removed" at 900 "rm -r '$there/$tree_name'"
    next_look
    check "also for the mount" [ ! -e "$here_at/$tree_name" ]
    note "the tree took $((SECONDS - started)) s"
}
