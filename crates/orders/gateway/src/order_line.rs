//! Order requests as people type them: `new AAPL buy 100 @190.50`.

use std::collections::HashMap;

use tapeworks_fix_wire::{TimePrecision, read_decimal, read_unsigned, write_timestamp};

/// A request typed on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderLine {
    /// A new order.
    New {
        /// Symbol (55).
        symbol: String,
        /// Side (54).
        side: char,
        /// OrderQty (38).
        quantity: String,
        /// Price (44); `None`: a market order.
        price: Option<String>,
        /// TimeInForce (59).
        time_in_force: char,
        /// ClOrdID (11), if given.
        id: Option<String>,
    },
    /// Cancels the order with this ClOrdID.
    Cancel(String),
    /// Changes the quantity and price of the order with this ClOrdID.
    Replace {
        /// ClOrdID of the order.
        id: String,
        /// OrderQty (38).
        quantity: String,
        /// Price (44).
        price: String,
    },
    /// Cancels all orders of a symbol.
    MassCancel(String),
    /// Requests the status of the order with this ClOrdID.
    Status(String),
}

/// The keywords for TimeInForce (59).
const TIMES: [(&str, char); 6] =
    [("day", '0'), ("gtc", '1'), ("opening", '2'), ("ioc", '3'), ("fok", '4'), ("closing", '7')];

/// The syntax of the requests, for people.
pub const FORMS: &str = "\
new SYMBOL buy|sell|short QUANTITY [@PRICE] [day|gtc|ioc|fok|opening|closing] [id=ID]
cancel ID
replace ID QUANTITY @PRICE
mass SYMBOL
status ID";

fn quantity(text: &str) -> Result<String, String> {
    match read_unsigned(text.as_bytes()) {
        Ok(number) if number > 0 => Ok(text.to_owned()),
        _ => Err(format!("'{text}' is no quantity: a whole number above 0")),
    }
}

fn price(text: &str) -> Result<String, String> {
    let digits = text.strip_prefix('@').ok_or_else(|| format!("'{text}' is no price: write @190.50"))?;
    read_decimal::<8>(digits.as_bytes()).map_err(|_| format!("'{text}' is no price: write @190.50"))?;
    Ok(digits.to_owned())
}

impl OrderLine {
    /// Parses a line. Returns `None` if its first word names no request.
    ///
    /// # Errors
    /// Describes in one line what is wrong with the rest.
    pub fn parse(line: &str) -> Option<Result<Self, String>> {
        let mut words = line.split_whitespace();
        let first = words.next()?;
        let rest: Vec<&str> = words.collect();
        Some(match first {
            "new" => Self::new(&rest),
            "cancel" => Self::of_one(&rest, first, Self::Cancel),
            "mass" => Self::of_one(&rest, first, Self::MassCancel),
            "status" => Self::of_one(&rest, first, Self::Status),
            "replace" => Self::replace(&rest),
            _ => return None,
        })
    }

    fn of_one(rest: &[&str], first: &str, make: impl FnOnce(String) -> Self) -> Result<Self, String> {
        match rest {
            [one] => Ok(make((*one).to_owned())),
            _ => Err(format!("'{first}' takes one word")),
        }
    }

    fn new(rest: &[&str]) -> Result<Self, String> {
        let [symbol, side, count, options @ ..] = rest else {
            return Err("write new SYMBOL buy|sell QUANTITY [@PRICE]".to_owned());
        };
        let side = match *side {
            "buy" => '1',
            "sell" => '2',
            "short" => '5',
            other => return Err(format!("'{other}' is no side: buy, sell or short")),
        };
        let (mut limit, mut time_in_force, mut id) = (None, '0', None);
        for option in options {
            if option.starts_with('@') {
                limit = Some(price(option)?);
            } else if let Some(text) = option.strip_prefix("id=") {
                id = Some(text.to_owned());
            } else if let Some((_, time)) = TIMES.iter().find(|(name, _)| name == option) {
                time_in_force = *time;
            } else {
                let names: Vec<&str> = TIMES.iter().map(|(name, _)| *name).collect();
                return Err(format!("'{option}' is neither @PRICE, id=ID nor one of {}", names.join(", ")));
            }
        }
        let (symbol, quantity) = ((*symbol).to_owned(), quantity(count)?);
        Ok(Self::New { symbol, side, quantity, price: limit, time_in_force, id })
    }

    fn replace(rest: &[&str]) -> Result<Self, String> {
        let [id, count, limit] = rest else { return Err("write replace ID QUANTITY @PRICE".to_owned()) };
        Ok(Self::Replace { id: (*id).to_owned(), quantity: quantity(count)?, price: price(limit)? })
    }
}

/// A message: its MsgType, and the fields after the header.
pub type Message = (&'static str, Vec<(u32, String)>);

/// The orders of one client, so that later requests can refer to them.
#[derive(Clone, Debug)]
pub struct OrderBook {
    /// Symbol and side of each request's order, by ClOrdID.
    orders: HashMap<String, (String, char)>,
    prefix: String,
    next: u64,
}

impl OrderBook {
    /// Creates an empty book. A ClOrdID that is not given is generated from `prefix` and a number.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        Self { orders: HashMap::new(), prefix: prefix.to_owned(), next: 1 }
    }

    fn next_id(&mut self) -> String {
        let id = format!("{}{}", self.prefix, self.next);
        self.next += 1;
        id
    }

    fn known(&self, id: &str) -> Result<(String, char), String> {
        let order = self.orders.get(id).cloned();
        order
            .ok_or_else(|| format!("there is no order '{id}' of this run: its symbol and side are not known"))
    }

    /// Returns the MsgType and fields of a request sent at `now_ns`.
    ///
    /// # Errors
    /// The request refers to an unknown order.
    pub fn message(&mut self, line: &OrderLine, now_ns: u64) -> Result<Message, String> {
        let mut text = [0; 32];
        let length = write_timestamp(&mut text, now_ns, TimePrecision::default()).unwrap_or(0);
        let time = String::from_utf8_lossy(text.get(..length).unwrap_or_default()).into_owned();
        Ok(match line {
            OrderLine::New { symbol, side, quantity, price, time_in_force, id } => {
                let id = id.clone().unwrap_or_else(|| self.next_id());
                self.orders.insert(id.clone(), (symbol.clone(), *side));
                let mut fields = vec![
                    (11, id),
                    (55, symbol.clone()),
                    (54, side.to_string()),
                    (60, time),
                    (38, quantity.clone()),
                ];
                fields.push((40, if price.is_some() { "2" } else { "1" }.to_owned()));
                fields.extend(price.clone().map(|price| (44, price)));
                fields.push((59, time_in_force.to_string()));
                ("D", fields)
            }
            OrderLine::Cancel(original) => {
                let (symbol, side) = self.known(original)?;
                let fields = [(11, self.next_id()), (41, original.clone()), (55, symbol)];
                ("F", [&fields[..], &[(54, side.to_string()), (60, time)]].concat())
            }
            OrderLine::Replace { id: original, quantity, price } => {
                let (symbol, side) = self.known(original)?;
                let id = self.next_id();
                self.orders.insert(id.clone(), (symbol.clone(), side));
                let fields =
                    [(11, id), (41, original.clone()), (55, symbol), (54, side.to_string()), (60, time)];
                let terms = [(38, quantity.clone()), (40, "2".to_owned()), (44, price.clone())];
                ("G", [&fields[..], &terms].concat())
            }
            OrderLine::MassCancel(symbol) => {
                ("q", vec![(11, self.next_id()), (530, "1".to_owned()), (55, symbol.clone()), (60, time)])
            }
            OrderLine::Status(id) => {
                let (symbol, side) = self.known(id)?;
                ("H", vec![(11, id.clone()), (55, symbol), (54, side.to_string())])
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_become_messages_and_later_ones_name_earlier_ones() {
        let mut book = OrderBook::new("X");
        let mut message = |line: &str| {
            let line = OrderLine::parse(line).unwrap().unwrap();
            let (kind, fields) = book.message(&line, 1_795_426_200_123_000_000)?;
            let fields: Vec<String> = fields.iter().map(|(tag, value)| format!("{tag}={value}")).collect();
            Ok::<_, String>(format!("{kind} {}", fields.join("|")))
        };
        let time = "60=20261123-09:30:00.123";
        assert_eq!(
            message("new AAPL buy 100 @190.5").unwrap(),
            format!("D 11=X1|55=AAPL|54=1|{time}|38=100|40=2|44=190.5|59=0")
        );
        assert_eq!(
            message("new VOD sell 7 id=own fok").unwrap(),
            format!("D 11=own|55=VOD|54=2|{time}|38=7|40=1|59=4")
        );
        assert_eq!(
            message("replace X1 50 @191").unwrap(),
            format!("G 11=X2|41=X1|55=AAPL|54=1|{time}|38=50|40=2|44=191")
        );
        assert_eq!(message("cancel X2").unwrap(), format!("F 11=X3|41=X2|55=AAPL|54=1|{time}"));
        assert_eq!(message("mass VOD").unwrap(), format!("q 11=X4|530=1|55=VOD|{time}"));
        assert_eq!(message("status own").unwrap(), "H 11=own|55=VOD|54=2");
        assert!(message("cancel X9").unwrap_err().contains("'X9'"));
    }

    #[test]
    fn requests_are_read_as_people_write_them() {
        let parse = |line| OrderLine::parse(line).unwrap();
        assert_eq!(
            parse("new AAPL buy 100 @190.50 ioc id=X1"),
            Ok(OrderLine::New {
                symbol: "AAPL".to_owned(),
                side: '1',
                quantity: "100".to_owned(),
                price: Some("190.50".to_owned()),
                time_in_force: '3',
                id: Some("X1".to_owned()),
            })
        );
        assert!(matches!(parse(" new  AAPL short 1 "), Ok(OrderLine::New { side: '5', price: None, .. })));
        assert_eq!(parse("cancel X1"), Ok(OrderLine::Cancel("X1".to_owned())));
        assert!(matches!(parse("replace X1 5 @1"), Ok(OrderLine::Replace { .. })));
        assert_eq!(parse("mass AAPL"), Ok(OrderLine::MassCancel("AAPL".to_owned())));
        assert_eq!(OrderLine::parse("hello"), None);
        assert_eq!(OrderLine::parse(""), None);
    }

    #[test]
    fn a_wrong_request_names_the_wrong_word() {
        for (line, named) in [
            ("new AAPL", "write new"),
            ("new AAPL hold 5", "'hold'"),
            ("new AAPL buy 0", "'0'"),
            ("new AAPL buy 1.5", "'1.5'"),
            ("new AAPL buy 5 @x", "'@x'"),
            ("new AAPL buy 5 later", "'later'"),
            ("cancel", "one word"),
            ("replace X 5 6", "'6'"),
            ("replace X", "write replace"),
        ] {
            let error = OrderLine::parse(line).unwrap().unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
