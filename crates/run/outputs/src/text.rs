//! Text of remote systems, for logs and pages.

/// Returns a remote message as one line. A message longer than `most` characters is truncated, and ends with `...`.
pub fn one_line(text: &str, most: usize) -> String {
    let mut line: String =
        text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if let Some((end, _)) = line.char_indices().nth(most) {
        line.truncate(end);
        line.push_str("...");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_error_is_shown_in_one_line() {
        assert_eq!(one_line("a\nb\tc", 300), "a b c");
        let long = one_line(&"é".repeat(400), 300);
        assert!(long.chars().count() == 303 && long.ends_with("é..."));
    }
}
