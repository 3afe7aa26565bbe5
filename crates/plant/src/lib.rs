//! The ticker plant: captures and lines in, books and NBBO out.
