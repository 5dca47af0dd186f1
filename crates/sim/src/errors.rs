//! What errors of several kinds have in common.

/// Makes errors of what they are about: `errors_of!(Failure: Backend(backend::Error))` says that a `backend::Error` becomes
/// `Failure::Backend`.
#[macro_export]
macro_rules! errors_of {
    ($to:ident: $($name:ident($error:ty)),*) => {
        $(impl From<$error> for $to {
            fn from(e: $error) -> $to {
                $to::$name(e)
            }
        })*
    };
}

/// Makes text of errors, for who says them as text.
#[macro_export]
macro_rules! text_of {
    ($($error:ty),*) => {
        $(impl From<$error> for String {
            fn from(e: $error) -> String {
                e.to_string()
            }
        })*
    };
}
