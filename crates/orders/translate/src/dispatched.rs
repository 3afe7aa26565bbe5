//! Chooses how the translator's two state machines dispatch.
//!
//! The default is a table. `RUSTFLAGS='--cfg tapeworks_dispatch="match"'` or `"chain"` builds everything with another
//! dispatch, so that they can be compared; nothing else changes.

/// Declares a machine, and adds its `dispatch`.
macro_rules! order_machine {
    (@ $dispatch:tt
        $(#[$doc:meta])* $visibility:vis machine $name:ident<$lifetime:lifetime> {
            context: $context:ty, message: $message:ty $(, output: $output:ty)?
        }
        $($rest:tt)*
    ) => {
        tapeworks_dispatch::machine! {
            $(#[$doc])* $visibility machine $name<$lifetime> {
                context: $context, message: $message, $(output: $output,)? dispatch: $dispatch
            }
            $($rest)*
        }
    };
    ($($machine:tt)*) => {
        #[cfg(not(any(tapeworks_dispatch = "match", tapeworks_dispatch = "chain")))]
        $crate::dispatched::order_machine! { @ table $($machine)* }
        #[cfg(tapeworks_dispatch = "match")]
        $crate::dispatched::order_machine! { @ match $($machine)* }
        #[cfg(tapeworks_dispatch = "chain")]
        $crate::dispatched::order_machine! { @ chain $($machine)* }
    };
}
pub(crate) use order_machine;
