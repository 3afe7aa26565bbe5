//! Files with plans that failed once and their stories: of a market, or of orders.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::orders::OrderPlan;
use crate::plan::Plan;

/// A plan that failed once.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Regression {
    /// What went wrong, and why.
    pub story: String,
    /// The plan.
    #[serde(flatten)]
    pub plan: Saved,
}

/// A plan of either kind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Saved {
    /// A market with its plant.
    #[serde(rename = "plan")]
    Market(Box<Plan>),
    /// A gateway with its exchange.
    #[serde(rename = "orders")]
    Orders(OrderPlan),
}

impl Regression {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read or parsed; the error names the file and the position.
    pub fn load(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Writes a file, replacing an existing one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        let mut text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        text.push('\n');
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_the_same_after_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one.json");
        for seed in 0..50 {
            for plan in [Saved::Market(Box::new(Plan::draw(seed))), Saved::Orders(OrderPlan::draw(seed))] {
                let regression = Regression { story: "a story".to_owned(), plan };
                regression.save(&path).unwrap();
                assert_eq!(Regression::load(&path).unwrap(), regression);
            }
        }
    }
}
