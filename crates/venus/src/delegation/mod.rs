//! Changes of names and status: answered here where a delegation covers them, sent otherwise; and
//! the rights that decide. Imports `base` to `writeback`.

mod changes;
mod delegations;
mod rights;

pub use self::changes::Changes;
pub(crate) use self::delegations::Delegations;
pub use self::rights::AccessRights;
pub use self::rights::somebody;
