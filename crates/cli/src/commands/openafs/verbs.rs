//! OpenAFS's verbs, with their other names and their options, as its own programs list them: what a
//! shortened word may mean is decided by these, so that a script means here what it meant there.

/// A verb of OpenAFS.
pub(super) struct VerbRow {
    /// `vos`, `fs` or `pts`.
    pub suite: &'static str,
    /// The verb's name.
    pub name: &'static str,
    /// Its other names, separated by spaces.
    others: &'static str,
    /// Its options beside those of all verbs of its suite, separated by spaces. `name=` takes a
    /// value, `name+` takes several, `name|n` has another name; `!name` is never abbreviated.
    options: &'static str,
}

/// An option of OpenAFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OptionRow {
    pub name: &'static str,
    pub other: Option<&'static str>,
    pub values: OptionValues,
    pub is_abbreviated: bool,
}

/// The values that follow an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionValues {
    None,
    One,
    Many,
}

impl VerbRow {
    /// All names of the verb.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.others.split_whitespace())
    }

    /// The options of this verb, and those of all verbs of its suite.
    pub fn options(&self) -> impl Iterator<Item = OptionRow> {
        self.options.split_whitespace().map(option).chain(common(self.suite))
    }
}

/// The options of all verbs of a suite.
pub(super) fn common(suite: &str) -> impl Iterator<Item = OptionRow> {
    let of = COMMON.iter().find(|(of, _)| *of == suite).map_or("", |(_, options)| *options);
    of.split_whitespace().map(option)
}

/// The verbs of a suite.
pub(super) fn verbs(suite: &str) -> impl Iterator<Item = &'static VerbRow> {
    VERBS.iter().filter(move |row| row.suite == suite)
}

fn option(text: &'static str) -> OptionRow {
    let (is_abbreviated, text) = text.strip_prefix('!').map_or((true, text), |text| (false, text));
    let (text, values) = match (text.strip_suffix('='), text.strip_suffix('+')) {
        (Some(text), _) => (text, OptionValues::One),
        (_, Some(text)) => (text, OptionValues::Many),
        (None, None) => (text, OptionValues::None),
    };
    let (name, other) = match text.split_once('|') {
        Some((name, other)) => (name, Some(other)),
        None => (text, None),
    };
    OptionRow { name, other, values, is_abbreviated }
}

const COMMON: &[(&str, &str)] = &[
    ("fs", "help"),
    ("pts", "cell= noauth !test force localauth auth encrypt config= help"),
    ("vos", "cell|c= noauth localauth verbose encrypt noresolve config= help"),
];

const fn row(
    suite: &'static str,
    name: &'static str,
    others: &'static str,
    options: &'static str,
) -> VerbRow {
    VerbRow { suite, name, others, options }
}

const VERBS: &[VerbRow] = &[
    row("fs", "apropos", "", "topic="),
    row("fs", "bypassthreshold", "", "size="),
    row("fs", "checkservers", "", "cell= all fast interval="),
    row("fs", "checkvolumes", "checkbackups", ""),
    row("fs", "cleanacl", "", "path+"),
    row("fs", "copyacl", "ca", "fromdir= todir+ clear id if"),
    row("fs", "cscpolicy", "", "share= manual programs documents disable"),
    row("fs", "discon", "", "mode= policy= force uid="),
    row("fs", "diskfree", "df", "path+ human"),
    row("fs", "examine", "listvol lv", "path+"),
    row("fs", "exportafs", "", "type= start= convert= uidcheck= submounts= clipags= pagcb="),
    row("fs", "flush", "", "path+"),
    row("fs", "flushall", "", ""),
    row("fs", "flushmount", "", "path+"),
    row("fs", "flushvolume", "", "path+"),
    row("fs", "getcacheparms", "", "files excessive"),
    row("fs", "getcalleraccess", "gca", "path+"),
    row("fs", "getcellstatus", "", "cell+"),
    row("fs", "getclientaddrs", "gc", ""),
    row("fs", "getcrypt", "", ""),
    row("fs", "getfid", "", "path+ literal"),
    row("fs", "getserverprefs", "gp", "file= numeric vlservers"),
    row("fs", "help", "", "topic+"),
    row("fs", "listacl", "la", "path+ id if cmd"),
    row("fs", "listaliases", "", ""),
    row("fs", "listcells", "", "numeric"),
    row("fs", "listquota", "lq", "path+ human"),
    row("fs", "lsmount", "", "dir+"),
    row("fs", "messages", "", "show="),
    row("fs", "minidump", "", ""),
    row("fs", "mkmount", "", "dir= vol= cell= rw fast"),
    row("fs", "monitor", "mariner", "server="),
    row("fs", "newalias", "", "alias= name="),
    row("fs", "newcell", "", "name= servers+ linkedcell="),
    row("fs", "nukenfscreds", "", "addr="),
    row("fs", "precache", "", "blocks="),
    row("fs", "quota", "", "path+"),
    row("fs", "rmmount", "removemount", "dir+"),
    row("fs", "rxstatpeer", "", "enable disable clear"),
    row("fs", "rxstatproc", "", "enable disable clear"),
    row("fs", "setacl", "sa", "dir+ acl+ clear negative id if"),
    row("fs", "setcachesize", "cachesize", "blocks= reset"),
    row("fs", "setcbaddr", "", "addr="),
    row("fs", "setcell", "", "cell+ suid nosuid"),
    row("fs", "setclientaddrs", "sc", "address+"),
    row("fs", "setcrypt", "", "crypt="),
    row("fs", "setquota", "sq", "path= max="),
    row("fs", "setserverprefs", "sp", "servers+ vlservers+ file= stdin"),
    row("fs", "setvol", "sv", "path+ max= offlinemsg="),
    row("fs", "storebehind", "sb", "kbytes= files+ allfiles= verbose"),
    row("fs", "sysname", "", "newsys+"),
    row("fs", "trace", "", "on off reset dump"),
    row("fs", "uuid", "", "generate"),
    row("fs", "version", "", ""),
    row("fs", "whereis", "", "path+"),
    row("fs", "whichcell", "", "path+"),
    row("fs", "wscell", "primarycell", ""),
    row("pts", "adduser", "", "user+ group+"),
    row("pts", "apropos", "", "topic="),
    row("pts", "chown", "", "name= owner="),
    row("pts", "creategroup", "cg", "name+ owner= id+"),
    row("pts", "createuser", "cu", "name+ id+"),
    row("pts", "delete", "", "nameorid+"),
    row("pts", "examine", "check", "nameorid+"),
    row("pts", "help", "", "topic+"),
    row("pts", "interactive", "in", ""),
    row("pts", "listentries", "", "users groups"),
    row("pts", "listmax", "", ""),
    row("pts", "listowned", "", "nameorid+"),
    row("pts", "membership", "groups", "nameorid+ supergroups expandgroups"),
    row("pts", "quit", "", ""),
    row("pts", "removeuser", "", "user+ group+"),
    row("pts", "rename", "chname", "oldname= newname="),
    row("pts", "setfields", "", "nameorid+ access= groupquota="),
    row("pts", "setmax", "", "group= user="),
    row("pts", "sleep", "", "delay="),
    row("pts", "source", "", "file="),
    row("pts", "version", "", ""),
    row("vos", "addsite", "", "server= partition= id= roid= valid"),
    row("vos", "apropos", "", "topic="),
    row("vos", "backup", "", "id="),
    row("vos", "backupsys", "", "prefix+ server= partition= exclude xprefix+ dryrun !noexecute"),
    row("vos", "changeaddr", "", "oldaddr= newaddr= remove force"),
    row("vos", "changeloc", "", "server= partition= id="),
    row("vos", "clone", "", "id= server= partition= toname= toid= offline readonly readwrite"),
    row("vos", "convertROtoRW", "", "server= partition= id= force"),
    row(
        "vos",
        "copy",
        "",
        "id= fromserver= frompartition= toname= toserver= topartition= offline readonly live",
    ),
    row("vos", "create", "", "server= partition= name= maxquota= id= roid="),
    row("vos", "delentry", "", "id+ prefix= server= partition= dryrun !noexecute"),
    row("vos", "dump", "", "id= time= file= server= partition= clone omitdirs"),
    row("vos", "endtrans", "", "server= transaction="),
    row("vos", "examine", "e volinfo", "id= extended format"),
    row("vos", "help", "", "topic+"),
    row("vos", "listaddrs", "", "uuid= host= printuuid"),
    row("vos", "listpart", "", "server="),
    row("vos", "listvldb", "", "name= server= partition= locked quiet nosort"),
    row("vos", "listvol", "", "server= partition= fast long quiet extended format"),
    row("vos", "lock", "", "id="),
    row("vos", "move", "", "id= fromserver= frompartition= toserver= topartition= live"),
    row("vos", "offline", "", "server= partition= id= sleep= busy"),
    row("vos", "online", "", "server= partition= id="),
    row("vos", "partinfo", "", "server= partition= summary"),
    row("vos", "release", "", "id= force|f force-reclone stayonline"),
    row("vos", "remaddrs", "", "uuid="),
    row("vos", "remove", "", "server= partition= id="),
    row("vos", "remsite", "", "server= partition= id="),
    row("vos", "rename", "", "oldname= newname="),
    row(
        "vos",
        "restore",
        "",
        "server= partition= name= file= id= overwrite= offline readonly creation= \
            lastupdate= nodelete",
    ),
    row("vos", "setaddrs", "", "uuid= host+"),
    row("vos", "setfields", "", "id= maxquota= clearuse clearVolUpCounter"),
    row(
        "vos",
        "shadow",
        "",
        "id= fromserver= frompartition= toserver= topartition= toname= toid= offline \
            readonly live incremental",
    ),
    row("vos", "size", "", "id= partition= server= dump time="),
    row("vos", "status", "", "server="),
    row("vos", "syncserv", "", "server= partition= dryrun !noexecute"),
    row("vos", "syncvldb", "", "server= partition= volume= dryrun !noexecute"),
    row("vos", "unlock", "", "id="),
    row("vos", "unlockvldb", "", "server= partition="),
    row("vos", "version", "", ""),
    row("vos", "zap", "", "server= partition= id= force backup"),
];
