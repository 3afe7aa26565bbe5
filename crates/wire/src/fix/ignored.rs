//! Tags that a peer may send though nothing reads them.

/// The first tag that FIX leaves to users.
const FIRST_OF_USERS: u32 = 5_000;

/// Tags that are skipped wherever they stand in a message, whatever their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoredTags {
    /// These.
    pub tags: Vec<u32>,
    /// And those from 5000 on that are declared nowhere.
    pub user_defined: bool,
}

impl IgnoredTags {
    /// Whether the tag is skipped if it is not declared.
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
