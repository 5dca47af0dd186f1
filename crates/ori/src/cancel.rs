//! Ending a compilation without a result, at somebody else's wish.

use std::fmt;
use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Somebody who is asked between the steps of a compilation whether it is to go on. A wish to end it stays: who is asked may
/// then say what he likes.
#[derive(Clone)]
pub struct Cancel(Arc<Inner>);

struct Inner {
    wished: AtomicBool,
    ask: Box<dyn Fn() -> bool + Send + Sync>,
}

/// A question that panics leaves the answer open, which is a state like any other.
impl RefUnwindSafe for Inner {}

impl Cancel {
    /// `ask` says `true` to end the compilation. Several threads may ask at once.
    pub fn new(ask: impl Fn() -> bool + Send + Sync + 'static) -> Cancel {
        Cancel(Arc::new(Inner { wished: AtomicBool::new(false), ask: Box::new(ask) }))
    }

    /// Ends the compilation when the flag is set.
    pub fn on(flag: Arc<AtomicBool>) -> Cancel {
        Cancel::new(move || flag.load(Ordering::Relaxed))
    }

    /// Whether the compilation is to end.
    pub fn wished(&self) -> bool {
        if self.0.wished.load(Ordering::Relaxed) {
            return true;
        }
        let wished = (self.0.ask)();
        if wished {
            self.0.wished.store(true, Ordering::Relaxed);
        }
        wished
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("wished", &self.0.wished).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn a_wish_stays() {
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let cancel = Cancel::new(move || count.fetch_add(1, Ordering::Relaxed) == 1);
        assert_eq!([(); 4].map(|()| cancel.wished()), [false, true, true, true]);
        assert_eq!(asked.load(Ordering::Relaxed), 2, "nobody is asked again");
    }
}
