//! How requests reach the members: sessions, their connections, and what refusals mean.

pub(crate) mod errors;
mod link;
pub(crate) mod member;
pub(crate) mod pool;
pub(crate) mod session;
pub(crate) mod words;
mod worker;
