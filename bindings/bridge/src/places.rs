//! Where the calls of a loop stand while they are carried out.
//!
//! A call is a few kilobytes that stay where they are from the first poll on. To ask for that memory again
//! for each, and to give it back, costs more than the rest of what a loop does for a call; so a place that
//! has become free is taken over by the next call of the same kind.

use std::any::{Any, TypeId};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::border::caught;
use crate::failure::Failure;

/// How many free places of a kind are kept.
const KEPT: usize = 256;

/// A call in its place.
pub(crate) type Placed<D> = Pin<Box<dyn Call<D> + Send>>;

/// What a loop needs of a call in its place.
pub(crate) trait Call<D> {
    /// Polls it. Not to be polled again once it is ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<D>;

    /// Drops the call.
    fn end(self: Pin<&mut Self>);

    /// Keeps the place, whose call has ended.
    fn put_away(self: Pin<Box<Self>>, places: &mut Places);
}

pin_project! {
    struct Place<F, M> {
        #[pin]
        call: Option<F>,
        finish: Option<M>,
    }
}

impl<D, T, F, M> Call<D> for Place<F, M>
where
    F: Future<Output = T> + Send + 'static,
    M: FnOnce(Result<T, Failure>) -> D + Send + 'static,
{
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<D> {
        let this = self.project();
        let Some(call) = this.call.as_pin_mut() else { return Poll::Pending };
        let output = match caught(|| call.poll(context)) {
            Ok(polled) => Ok(ready!(polled)),
            Err(panic) => Err(panic),
        };
        match this.finish.take() {
            Some(finish) => Poll::Ready(finish(output)),
            None => Poll::Pending,
        }
    }

    fn end(self: Pin<&mut Self>) {
        let mut this = self.project();
        this.call.set(None);
        *this.finish = None;
    }

    fn put_away(self: Pin<Box<Self>>, places: &mut Places) {
        let free = places.of_kind::<Self>();
        if free.len() < KEPT {
            free.push(self);
        }
    }
}

/// The free places of one loop, by the kind of their calls.
#[derive(Default)]
pub(crate) struct Places(Vec<(TypeId, Box<dyn Any + Send>)>);

impl Places {
    /// Puts a call into a place, with what is made of its output or its panic.
    pub(crate) fn place<D, T: 'static>(
        &mut self,
        call: impl Future<Output = T> + Send + 'static,
        finish: impl FnOnce(Result<T, Failure>) -> D + Send + 'static,
    ) -> Placed<D> {
        self.placed(call, finish)
    }

    fn placed<F: Send + 'static, M: Send + 'static>(&mut self, call: F, finish: M) -> Pin<Box<Place<F, M>>> {
        match self.of_kind::<Place<F, M>>().pop() {
            Some(mut place) => {
                let mut free = place.as_mut().project();
                free.call.set(Some(call));
                *free.finish = Some(finish);
                place
            }
            None => Box::pin(Place { call: Some(call), finish: Some(finish) }),
        }
    }

    /// A loop has few kinds of calls, so they are looked for one by one.
    fn of_kind<P: Send + 'static>(&mut self) -> &mut Vec<Pin<Box<P>>> {
        let kind = TypeId::of::<P>();
        let at = self.0.iter().position(|(known, _)| *known == kind).unwrap_or_else(|| {
            self.0.push((kind, Box::new(Vec::<Pin<Box<P>>>::new())));
            self.0.len() - 1
        });
        self.0[at].1.downcast_mut().expect("its kind says what it is")
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::task::Waker;

    use super::*;

    fn poll<D>(place: &mut Placed<D>) -> Poll<D> {
        place.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_place_is_taken_over_and_nothing_of_the_last_call_stays() {
        let mut places = Places::default();
        let held = Arc::new(());
        let mut last = std::ptr::null::<()>();
        for round in 0..3 {
            let kept = Arc::clone(&held);
            let call = async move {
                let _kept = kept;
                pending::<()>().await;
            };
            let mut place = places.place(call, move |_| round);
            assert!(poll(&mut place).is_pending());
            let at = std::ptr::from_ref(&*place).cast();
            assert!(round == 0 || std::ptr::eq(at, last), "the same memory");
            last = at;
            assert_eq!(Arc::strong_count(&held), 2);
            place.as_mut().end();
            assert_eq!(Arc::strong_count(&held), 1);
            place.put_away(&mut places);
        }
    }

    #[test]
    fn a_panic_is_an_outcome() {
        let mut places = Places::default();
        let mut place = places.place(async { panic!("on purpose") }, |output: Result<(), _>| output);
        let Poll::Ready(Err(failure)) = poll(&mut place) else { panic!("a failure") };
        assert_eq!(failure.code, "internal");
    }
}
