use crate::backend::consul::Inner;
use crate::error::Result;
use crate::inspect::Examination;
pub(super) async fn examine(_inner: &Inner) -> Result<Examination> {
    Ok(Examination::new("consul", None, vec![], vec![]))
}
