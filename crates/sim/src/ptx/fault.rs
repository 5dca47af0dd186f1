//! Why a thread of the interpreter cannot go on.

use crate::gmma::DescriptorError;
use crate::image::NoImage;
use crate::memory::NoSuchBlock;
use crate::tensormap::TensorMapError;
use crate::tmem::TmemError;
use std::borrow::Cow;

/// What an instruction cannot do, in words; who executes it adds the place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault(Cow<'static, str>);

impl From<&'static str> for Fault {
    fn from(what: &'static str) -> Fault {
        Fault(what.into())
    }
}

impl From<String> for Fault {
    fn from(what: String) -> Fault {
        Fault(what.into())
    }
}

/// What others say of it.
macro_rules! because {
    ($($error:ty),*) => {
        $(impl From<$error> for Fault {
            fn from(e: $error) -> Fault {
                Fault(e.to_string().into())
            }
        })*
    };
}

because!(DescriptorError, NoImage, NoSuchBlock, TensorMapError, TmemError);

/// For the message of an error with its place.
impl From<Fault> for String {
    fn from(e: Fault) -> String {
        e.0.into_owned()
    }
}
