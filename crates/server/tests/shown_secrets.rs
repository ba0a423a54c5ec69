//! Types with a secret do not show it (AC-5) in the form that logs and errors print.

use std::fmt::Debug;

use guard::Signer;
use keys::{AtRest, TokenKeys};
use types::{Answer, AuthCall, Call, Secret};

const PASSWORD: &[u8] = b"open sesame, said the fox";
/// Of a token, or a request that makes one.
const BYTES: [u8; 39] = *b"\x01\x02\xfe\xfdrather long, so that it is seen\x00\xff\x80\x7f";

/// Do the printed forms have the bytes, as text, as a list or in hexadecimal digits?
fn shows(what: &dyn Debug, secret: &[u8]) -> bool {
    let list = secret.iter().map(ToString::to_string).collect::<Vec<_>>();
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let forms = [list.join(", "), list.join(",\n    "), secret.escape_ascii().to_string(), hex];
    let shown = [format!("{what:?}"), format!("{what:#?}")];
    shown
        .iter()
        .any(|shown| forms.iter().any(|form| shown.to_lowercase().contains(&form.to_lowercase())))
}

#[test]
fn calls_and_answers_show_no_password_and_no_token() {
    let password = || Secret::new(PASSWORD.to_vec());
    let calls = [
        AuthCall::Password { name: "joe".into(), password: password(), client: [7; 32] },
        AuthCall::SetPassword {
            name: "joe".into(),
            old: Some(password()),
            new: password(),
            keep_tokens: false,
        },
        AuthCall::Renew { token: BYTES.to_vec().into() },
        AuthCall::Kerberos { request: BYTES.to_vec().into(), client: [7; 32] },
    ];
    for call in calls {
        let call = Call::Auth { behalf: None, call: Box::new(call) };
        assert!(!shows(&call, PASSWORD) && !shows(&call, &BYTES), "{call:?}");
    }
    let answers = [
        Answer::Token(BYTES.to_vec().into()),
        Answer::Ticket {
            token: BYTES.to_vec().into(),
            reply: b"the other side was it".to_vec().into(),
        },
    ];
    for answer in answers {
        assert!(!shows(&answer, &BYTES), "{answer:?}");
    }
    assert!(!shows(&password(), PASSWORD));
    // The check finds a secret where it is shown.
    assert!(shows(&BYTES.to_vec(), &BYTES) && shows(&String::from_utf8_lossy(PASSWORD), PASSWORD));
}

#[test]
fn keys_show_nothing_of_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let (seed, signer) = Signer::random();
    assert!(!shows(&signer, &seed[..]));
    let tree = types::TreeKey::new(std::array::from_fn(|at| at as u8 | 0x80));
    assert!(!shows(&tree, &tree[..]) && shows(&*tree, &tree[..]));
    let at_rest = AtRest::new(dir.path().join("keys/at-rest"));
    at_rest.make().unwrap();
    let tokens = TokenKeys::of(dir.path());
    tokens.make().unwrap();
    let kept = |at: &str| {
        let text = std::fs::read_to_string(dir.path().join(at)).unwrap();
        let digits = text.trim().as_bytes().chunks(2);
        digits
            .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
            .collect::<Vec<u8>>()
    };
    assert!(!shows(&at_rest, &kept("keys/at-rest/1.key")));
    assert!(!shows(&tokens, &kept("keys/tokens/1.key")));
}
