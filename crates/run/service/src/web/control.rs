//! A gateway's control socket: serves the page's commands and status on a Unix socket, to users whom the file's permissions admit.
//!
//! The socket has its own thread, connections and listener, so clients of the page or the FIX port cannot block the operator's
//! kill switch.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;

use super::serving::Serving;
use super::{CONNECTION_TIME, HEADER_BYTES, HEADER_TIME};

/// Maximum number of simultaneous connections; further ones are closed.
const MOST_CONNECTIONS: usize = 64;

/// The file's permissions: only its owner has access.
const MODE: u32 = 0o600;

/// Why the control socket cannot be served.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum ControlError {
    /// The socket could not be created.
    #[error("no control socket at {}: {source}; `control` in the configuration names another place", path.display())]
    Socket {
        /// The path of the socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The thread or its runtime could not be started.
    #[error("no thread for the control socket: {0}")]
    Thread(io::Error),
}

/// The server of a control socket. Dropping it stops it and removes the file.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    _serving: Serving,
}

impl Control {
    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // If the folder was removed and recreated, the file may be missing or belong to another process.
        let _gone = std::fs::remove_file(&self.path);
    }
}

/// Creates the socket, replacing a stale one. At no time can anyone but its owner reach it.
fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "another file has this name"));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process has it"));
        }
        _ => {}
    }
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    // An earlier process with the same id may have left this file.
    let _gone = std::fs::remove_file(&new);
    let listener = UnixListener::bind(&new)?;
    let placed = std::fs::set_permissions(&new, Permissions::from_mode(MODE))
        .and_then(|()| std::fs::rename(&new, path))
        .and_then(|()| listener.set_nonblocking(true));
    if let Err(error) = placed {
        let _gone = std::fs::remove_file(&new);
        return Err(error);
    }
    Ok(listener)
}

/// Serves `routes` at `path`.
pub(super) fn start(path: PathBuf, routes: Router) -> Result<Control, ControlError> {
    let listener = match listen(&path) {
        Ok(listener) => listener,
        Err(source) => return Err(ControlError::Socket { path, source }),
    };
    let serve = async move {
        // Converted inside the runtime, which wakes the task when a connection arrives.
        let Ok(listener) = tokio::net::UnixListener::from_std(listener) else { return };
        serve(listener, routes).await;
    };
    let serving = Serving::start("control", serve).map_err(ControlError::Thread)?;
    Ok(Control { path, _serving: serving })
}

async fn serve(listener: tokio::net::UnixListener, routes: Router) {
    let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Most likely the process is out of file descriptors: retry later.
            tokio::time::sleep(super::ACCEPT_AGAIN).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else { continue };
        let service = TowerToHyperService::new(routes.clone());
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIME)
                .max_buf_size(HEADER_BYTES)
                .serve_connection(TokioIo::new(stream), service);
            // The connection is over, so its error has no recipient.
            let _ended = tokio::time::timeout(CONNECTION_TIME, connection).await;
            drop(permit);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use axum::routing::get;

    use super::*;

    fn ask(path: &Path) -> io::Result<String> {
        let mut stream = UnixStream::connect(path)?;
        stream.write_all(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    #[test]
    fn a_socket_left_behind_is_replaced_and_one_in_use_or_another_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.control");
        // Dropping a listener leaves its file.
        drop(UnixListener::bind(&path).unwrap());
        let routes = || Router::new().route("/", get(|| async { "hello" }));
        let control = start(path.clone(), routes()).unwrap();
        assert!(ask(&path).unwrap().ends_with("hello"));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        let why = start(path.clone(), routes()).unwrap_err().to_string();
        assert!(why.contains("store.control: another process has it"), "{why}");
        assert!(ask(&path).unwrap().ends_with("hello"), "it goes on");
        drop(control);
        assert!(!path.exists());
        std::fs::write(&path, "text").unwrap();
        assert!(start(path.clone(), routes()).unwrap_err().to_string().contains("another file"));
        assert_eq!(std::fs::read(&path).unwrap(), b"text");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left");
    }

    #[test]
    fn connections_that_say_nothing_do_not_keep_others_out_for_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let _control = start(path.clone(), Router::new().route("/", get(|| async { "hello" }))).unwrap();
        let _silent: Vec<_> = (0..MOST_CONNECTIONS + 8).map(|_| UnixStream::connect(&path)).collect();
        let began = std::time::Instant::now();
        while !ask(&path).is_ok_and(|answer| answer.ends_with("hello")) {
            assert!(began.elapsed() < 10 * HEADER_TIME, "the place of a silent one is never free");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}
