//! Keys and tokens: in the configuration, in a variable of the environment, or in a file that may be replaced while the process runs.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::config::{Reading, Section};
use crate::followed::{Followed, FollowedFiles};

/// A token that others than this machine can guess at has so many characters at least.
const TOKEN_LENGTH: usize = 16;

/// Whether a text can be a page's token, which only users of this machine can guess at if `is_local`.
///
/// # Errors
/// It is too short.
pub fn check_token(text: &str, is_local: bool) -> Result<(), String> {
    let (length, least) = (text.len(), if is_local { 1 } else { TOKEN_LENGTH });
    if length >= least {
        return Ok(());
    }
    Err(if is_local {
        "a token has a character at least".to_owned()
    } else {
        format!(
            "a token that others than this machine can guess at needs {TOKEN_LENGTH} characters, not {length}"
        )
    })
}

/// Whether a text can be a secret that others have chosen.
///
/// # Errors
/// It is empty.
pub fn check_secret(text: &str) -> Result<(), String> {
    if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(()) }
}

/// A key or token. It is never shown.
#[derive(Clone)]
pub enum Secret {
    /// As long as the process runs.
    Fixed(Arc<str>),
    /// The text of a file, without the white space around it.
    File(Arc<Followed<Arc<str>>>),
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fixed(one), Self::Fixed(other)) => one == other,
            (Self::File(one), Self::File(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for Secret {}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::Fixed(text.into())
    }
}

impl Secret {
    /// The names under which a section may have a page's token: as text, as a variable of the environment, as a file.
    pub const TOKEN: [&str; 3] = ["token", "token_env", "token_file"];

    /// The same of a client's key.
    pub const KEY: [&str; 3] = ["key", "key_env", "key_file"];

    /// The same of a password.
    pub const PASSWORD: [&str; 3] = ["password", "password_env", "password_file"];

    /// The text of a file. `check` says what is wrong with a text; one that fails leaves the one before.
    ///
    /// # Errors
    /// The file cannot be read, or its text fails the check.
    pub fn of_file(
        path: &Path,
        check: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let file = path.to_owned();
        let read = move || {
            let shown = file.display();
            let text = std::fs::read_to_string(&file).map_err(|error| format!("{shown}: {error}"))?;
            let text = text.trim();
            check(text).map_err(|why| format!("{shown}: {why}"))?;
            Ok::<Arc<str>, String>(text.into())
        };
        Ok(Self::File(Arc::new(Followed::new(vec![path.to_owned()], read)?)))
    }

    /// The text now.
    pub fn get(&self) -> Arc<str> {
        match self {
            Self::Fixed(text) => Arc::clone(text),
            Self::File(followed) => followed.get(),
        }
    }

    /// The file that is followed, if there is one.
    pub fn files(&self) -> Option<Arc<dyn FollowedFiles>> {
        match self {
            Self::Fixed(_) => None,
            Self::File(followed) => Some(Arc::clone(followed) as _),
        }
    }

    /// Whether a section has a secret under one of these names.
    pub fn is_in(section: &Section<'_>, names: [&str; 3]) -> bool {
        names.iter().any(|name| section.has(name))
    }

    /// Reads a secret that a section has as text, as the name of a variable of the environment, or as a path beside the configuration: under one of these
    /// names, in that order. `None`: it has none, or something is wrong with it.
    pub fn read(
        reading: &mut Reading<'_>,
        section: &mut Section<'_>,
        [key, variable, file]: [&'static str; 3],
        beside: &Path,
        check: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static,
    ) -> Option<Self> {
        let (text, name, path) =
            (section.text(reading, key), section.text(reading, variable), section.text(reading, file));
        let given = [&text, &name, &path].into_iter().flatten();
        if let Some((_, span)) = given.clone().nth(1) {
            reading.wrong(span.clone(), format!("one of '{key}', '{variable}' and '{file}' is enough"));
            return None;
        }
        let span = given.map(|(_, span)| span.clone()).next()?;
        let secret = match (text, name, path) {
            (Some((text, _)), ..) => check(&text).map(|()| Self::from(text.as_str())),
            (_, Some((name, _)), _) => std::env::var(&name)
                .map_err(|_| format!("the environment has no variable '{name}'"))
                .and_then(|text| check(&text).map(|()| Self::from(text.as_str()))),
            (.., Some((path, _))) => Self::of_file(&beside.join(path), check),
            (None, None, None) => return None,
        };
        secret.map_err(|why| reading.wrong(span, why)).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_replaced_file_counts_without_a_restart_and_one_that_fails_the_check_leaves_the_text_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "  first one\n").unwrap();
        let long = |text: &str| if text.len() < 5 { Err("too short".to_owned()) } else { Ok(()) };
        let secret = Secret::of_file(&path, long).unwrap();
        assert_eq!(&*secret.get(), "first one");
        let followed = secret.files().unwrap();
        let until = |is_so: &dyn Fn() -> bool| {
            let began = Instant::now();
            while !is_so() {
                assert!(began.elapsed() < Duration::from_secs(20), "{:?}", followed.problem());
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        std::fs::write(&path, "two").unwrap();
        until(&|| {
            assert_eq!(&*secret.get(), "first one");
            followed.problem().is_some()
        });
        let problem = followed.problem().unwrap();
        assert!(problem.ends_with("token: too short") && !problem.contains("two"), "{problem}");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "second one").unwrap();
        until(&|| &*secret.get() == "second one");
        assert_eq!(followed.problem(), None);
        assert!(followed.counters().reloads.get() > followed.counters().failed_reloads.get());
        assert!(!format!("{secret:?}{followed:?}").contains("one"));
        assert_eq!(
            Secret::of_file(&folder.path().join("none"), long).unwrap_err(),
            format!("{}: No such file or directory (os error 2)", folder.path().join("none").display())
        );
    }
}
