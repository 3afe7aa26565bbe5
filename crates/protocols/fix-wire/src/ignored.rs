//! Tags that a peer may send although nothing reads them.

/// The first user-defined tag in FIX.
const FIRST_OF_USERS: u32 = 5_000;

/// Tags that are skipped anywhere in a message, regardless of their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoredTags {
    /// Ignored tags.
    pub tags: Vec<u32>,
    /// Whether undeclared tags from 5000 on are ignored too.
    pub user_defined: bool,
}

impl IgnoredTags {
    /// Returns whether the tag is skipped if it is undeclared.
    #[inline]
    #[must_use]
    pub fn has(&self, tag: u32) -> bool {
        self.user_defined && tag >= FIRST_OF_USERS || self.tags.contains(&tag)
    }
}

impl From<Vec<u32>> for IgnoredTags {
    fn from(tags: Vec<u32>) -> Self {
        Self { tags, user_defined: false }
    }
}
