# Users with tokens, and one without. Sourced by tests/kernels.sh.

login() { # login USER UID
    guest_login "$client" $name X.ORG "$1" opensesame "$2"
}
ann() { # ann COMMAND: as another user of the same machine
    guest 60 "exec setpriv --reuid 4712 --regid 4712 --clear-groups bash -c 'cd /; $1'"
}

users() {
    echo secret > "$here_at/secret"
    check "without a token root is not let in" refused at 60 "cat '$there/secret'"
    check "joe gets a token" login joe 0
    check "with which he is" says_there secret "$there/secret"
    check "what he makes" at 60 "echo joe > '$there/of.joe'"
    next_look
    check "is his" [ "$(stat -c %u "$here_at/of.joe")" = 4711 ]
    check "ann of the same machine is not let in" refused ann "cat $there/secret"
    check "she gets a token, too" login ann 4712
    check "and is not let in" refused ann "cat $there/secret"
    check "nor does she write" refused ann "echo x > $there/of.ann"
    check "she comes into the list" native_fs setacl "$here_at" ann rl
    check "and reads at her next look" says secret 0 ann "cat $there/secret"
    check "but does not write" says "Permission denied" 1 ann "echo x > $there/secret"
    check "she goes from the list" native_fs setacl "$here_at" ann none
    check "and does not read at her next look" says "Permission denied" 1 ann "cat $there/secret"
    check "nor list" refused ann "ls $there"
    "lists_$client"
    rm "$here_at/secret" "$here_at/of.joe"
}

# Lists and numbers by the clients' own ways.
lists_kafs() {
    attribute() { at 20 "getfattr --absolute-names --only-values -n afs.$1 '$there/secret'"; }
    check "kafs tells the cell" [ "$(attribute cell)" = $name ]
    check "and the volume" [ "$(attribute volume)" = "$work" ]
    check "and numbers" says : 0 attribute fid
    check "it shows the list" says joe 0 at 20 \
        "getfattr --absolute-names --only-values -n afs.acl '$there'"
    check "and changes it" at 20 "setfattr -n afs.acl -v '$(printf '2\n0\njoe\t127\nann\t9')
' '$there'"
    check "as the mount sees" says "ann rl" 0 native_fs listacl "$here_at"
    check "ann is let in" says secret 0 ann "cat $there/secret"
    native_fs setacl "$here_at" ann none
}
lists_openafs() {
    fs() { at 60 "$(guest_programs) fs $*"; }
    check "fs listacl" says "joe rlidwka" 0 fs listacl "$there"
    check "fs setacl" fs setacl "$there" ann rl
    check "as the mount sees" says "ann rl" 0 native_fs listacl "$here_at"
    check "ann is let in" says secret 0 ann "cat $there/secret"
    check "fs setacl takes her out" fs setacl "$there" ann none
    check "and she is not" refused ann "cat $there/secret"
    check "fs examine" says "Volume status for vid" 0 fs examine "$there"
    check "fs listquota" says "$work" 0 fs listquota "$there"
    check "fs whereis" says "is on host $address" 0 fs whereis "$there"
    check "fs checkservers" says "All servers are running" 0 fs checkservers
    check "tokens" says "rxkad" 0 at 60 "$(guest_programs) tokens | sed 's/tokens for/rxkad/'"
}
