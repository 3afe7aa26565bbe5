//! Followed files such as certificates, keys and tokens: how often they were reread, and their problems.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tapeworks_runtime::followed::FollowedFiles;

use super::prometheus::{Kind, Text};

/// The purposes, and the files.
pub(super) type Files = [(String, Arc<dyn FollowedFiles>)];

/// Returns the counters of all files, and why their current contents cannot be used.
pub(super) fn status(files: &Files) -> Value {
    let one = |followed: &dyn FollowedFiles| {
        let mut one = json!({ "problem": followed.problem() });
        for (name, _, count) in followed.counters().all() {
            one[name] = count.into();
        }
        one
    };
    files.iter().map(|(name, followed)| (name.clone(), one(&**followed))).collect::<Map<_, _>>().into()
}

/// Writes the same counters as metrics.
pub(super) fn metrics(text: &mut Text, files: &Files) {
    let Some((_, first)) = files.first() else { return };
    for (place, (counter, help, _)) in first.counters().all().into_iter().enumerate() {
        let name = format!("files_{counter}_total");
        text.family(&name, Kind::Counter, help);
        for (of, followed) in files {
            let count = followed.counters().all().get(place).map_or(0, |(_, _, count)| *count);
            text.sample(&name, &[("files", of)], count);
        }
    }
    text.family("files_unusable", Kind::Gauge, "1 while files that were replaced cannot be used");
    for (of, followed) in files {
        text.sample("files_unusable", &[("files", of)], u8::from(followed.problem().is_some()));
    }
}
