//! Socket options that the socket libraries do not support.
use std::io;
use std::os::fd::AsRawFd;

/// Sets an option to the bytes of `value`.
pub(super) fn set<T: Copy>(
    socket: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the descriptor stays open while the socket is borrowed; the kernel reads at most the bytes of `value`.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option into `value`; bytes that the kernel does not write keep their value.
///
/// # Safety
/// Any bytes are a valid `T`.
pub(super) unsafe fn get<T: Copy>(
    socket: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    mut value: T,
) -> io::Result<T> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the descriptor stays open while the socket is borrowed; the kernel writes at most `length` bytes into
    // `value`, and the caller promises that any bytes are valid.
    let got = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length)
    };
    if got == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}
