//! Keys and tokens from the configuration, the environment, or followed files.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::config::{Reading, Section};
use crate::followed::{Followed, FollowedFiles};

/// The minimum length of a token that can be guessed at from other machines.
const TOKEN_LENGTH: usize = 16;

/// Checks whether a text can be a page's token. If `is_local`, only users of this machine can guess at the token.
///
/// # Errors
/// If the text is too short.
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

/// Checks whether a text can be a secret chosen by someone else.
///
/// # Errors
/// If the text is empty.
pub fn check_secret(text: &str) -> Result<(), String> {
    if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(()) }
}

/// A key or token, which is never shown.
#[derive(Clone)]
pub enum Secret {
    /// A text that stays the same while the process runs.
    Fixed(Arc<str>),
    /// The text of a file, with surrounding white space trimmed.
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
    /// The keys for a page's token in a section: as text, as an environment variable, as a file.
    pub const TOKEN: [&str; 3] = ["token", "token_env", "token_file"];

    /// The same for a client's key.
    pub const KEY: [&str; 3] = ["key", "key_env", "key_file"];

    /// The same for a password.
    pub const PASSWORD: [&str; 3] = ["password", "password_env", "password_file"];

    /// Reads a secret from a file and follows it. `check` validates each text; an invalid text leaves the previous one in use.
    ///
    /// # Errors
    /// If the file cannot be read, or its text is invalid.
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

    /// Returns the current text.
    pub fn get(&self) -> Arc<str> {
        match self {
            Self::Fixed(text) => Arc::clone(text),
            Self::File(followed) => followed.get(),
        }
    }

    /// Returns the followed file, if there is one.
    pub fn files(&self) -> Option<Arc<dyn FollowedFiles>> {
        match self {
            Self::Fixed(_) => None,
            Self::File(followed) => Some(Arc::clone(followed) as _),
        }
    }

    /// Returns whether a section has a secret under one of these keys.
    pub fn is_in(section: &Section<'_>, names: [&str; 3]) -> bool {
        names.iter().any(|name| section.has(name))
    }

    /// Reads a secret from the first of these keys in a section: text, the name of an environment variable, or a path relative to
    /// the configuration. Returns `None` if the section has no secret, or an invalid one.
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
