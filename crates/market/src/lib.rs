//! Normalised market events, order books, best bid and offer, synthetic NBBO.
