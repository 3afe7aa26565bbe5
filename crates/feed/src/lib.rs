//! Venue sessions and their translation to normalised market events.
