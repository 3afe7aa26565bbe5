//! Names of the tags that sessions and translators look up by number, and tag sets.

use std::collections::HashSet;

/// Declares the names, each documented by the field's name in the standard.
macro_rules! tags {
    ($($name:ident = $number:literal $field:literal,)*) => {
        /// The numbers of fields by name.
        pub mod tag {
            $(#[doc = concat!($field, ".")] pub const $name: u32 = $number;)*
        }
    };
}

tags! {
    ACCOUNT = 1 "Account",
    BEGIN_SEQ_NO = 7 "BeginSeqNo",
    BEGIN_STRING = 8 "BeginString",
    BODY_LENGTH = 9 "BodyLength",
    CHECK_SUM = 10 "CheckSum",
    CL_ORD_ID = 11 "ClOrdID",
    END_SEQ_NO = 16 "EndSeqNo",
    EXEC_INST = 18 "ExecInst",
    HANDL_INST = 21 "HandlInst",
    MSG_SEQ_NUM = 34 "MsgSeqNum",
    MSG_TYPE = 35 "MsgType",
    NEW_SEQ_NO = 36 "NewSeqNo",
    ORDER_QTY = 38 "OrderQty",
    ORD_TYPE = 40 "OrdType",
    ORIG_CL_ORD_ID = 41 "OrigClOrdID",
    POSS_DUP_FLAG = 43 "PossDupFlag",
    PRICE = 44 "Price",
    REF_SEQ_NUM = 45 "RefSeqNum",
    SECURITY_ID = 48 "SecurityID",
    SENDER_COMP_ID = 49 "SenderCompID",
    SENDER_SUB_ID = 50 "SenderSubID",
    SENDING_TIME = 52 "SendingTime",
    SIDE = 54 "Side",
    SYMBOL = 55 "Symbol",
    TARGET_COMP_ID = 56 "TargetCompID",
    TARGET_SUB_ID = 57 "TargetSubID",
    TEXT = 58 "Text",
    TIME_IN_FORCE = 59 "TimeInForce",
    POSS_RESEND = 97 "PossResend",
    ENCRYPT_METHOD = 98 "EncryptMethod",
    STOP_PX = 99 "StopPx",
    HEART_BT_INT = 108 "HeartBtInt",
    MIN_QTY = 110 "MinQty",
    MAX_FLOOR = 111 "MaxFloor",
    TEST_REQ_ID = 112 "TestReqID",
    ON_BEHALF_OF_COMP_ID = 115 "OnBehalfOfCompID",
    ON_BEHALF_OF_SUB_ID = 116 "OnBehalfOfSubID",
    QUOTE_ID = 117 "QuoteID",
    ORIG_SENDING_TIME = 122 "OrigSendingTime",
    GAP_FILL_FLAG = 123 "GapFillFlag",
    EXPIRE_TIME = 126 "ExpireTime",
    DELIVER_TO_COMP_ID = 128 "DeliverToCompID",
    DELIVER_TO_SUB_ID = 129 "DeliverToSubID",
    BID_PX = 132 "BidPx",
    OFFER_PX = 133 "OfferPx",
    BID_SIZE = 134 "BidSize",
    OFFER_SIZE = 135 "OfferSize",
    RESET_SEQ_NUM_FLAG = 141 "ResetSeqNumFlag",
    SENDER_LOCATION_ID = 142 "SenderLocationID",
    TARGET_LOCATION_ID = 143 "TargetLocationID",
    ON_BEHALF_OF_LOCATION_ID = 144 "OnBehalfOfLocationID",
    DELIVER_TO_LOCATION_ID = 145 "DeliverToLocationID",
    MAX_SHOW = 210 "MaxShow",
    NO_QUOTE_ENTRIES = 295 "NoQuoteEntries",
    QUOTE_CANCEL_TYPE = 298 "QuoteCancelType",
    QUOTE_ENTRY_ID = 299 "QuoteEntryID",
    REF_TAG_ID = 371 "RefTagID",
    REF_MSG_TYPE = 372 "RefMsgType",
    SESSION_REJECT_REASON = 373 "SessionRejectReason",
    BUSINESS_REJECT_REASON = 380 "BusinessRejectReason",
    EXPIRE_DATE = 432 "ExpireDate",
    PARTY_ID = 448 "PartyID",
    PARTY_ROLE = 452 "PartyRole",
    NO_PARTY_IDS = 453 "NoPartyIDs",
    ORDER_CAPACITY = 528 "OrderCapacity",
    MASS_CANCEL_REQUEST_TYPE = 530 "MassCancelRequestType",
    QUOTE_TYPE = 537 "QuoteType",
    USERNAME = 553 "Username",
    PASSWORD = 554 "Password",
    NEXT_EXPECTED_MSG_SEQ_NUM = 789 "NextExpectedMsgSeqNum",
    APPL_VER_ID = 1128 "ApplVerID",
    CSTM_APPL_VER_ID = 1129 "CstmApplVerID",
    DEFAULT_APPL_VER_ID = 1137 "DefaultApplVerID",
    DISPLAY_QTY = 1138 "DisplayQty",
    APPL_EXT_ID = 1156 "ApplExtID",
    MARKET_SEGMENT_ID = 1300 "MarketSegmentID",
}

/// Tags below this limit have a bit each: the standard's tags and the lower user-defined ones.
const BIT_TAGS: u32 = 16_384;

/// A set of tags. A lookup costs one load and a shift for tags below 16,384, otherwise a hash lookup.
#[derive(Clone, Debug, Default)]
pub struct TagSet {
    bits: Vec<u64>,
    others: HashSet<u32>,
}

impl TagSet {
    /// Returns whether the set contains the tag.
    #[inline(always)]
    #[must_use]
    pub fn has(&self, tag: u32) -> bool {
        match self.bits.get(tag as usize / 64) {
            Some(word) => word >> (tag % 64) & 1 != 0,
            None => tag >= BIT_TAGS && self.others.contains(&tag),
        }
    }

    /// Adds the tag. Returns whether the tag is new. Allocates if the tag is higher than all earlier ones.
    #[inline(always)]
    pub fn insert(&mut self, tag: u32) -> bool {
        let bit = 1 << (tag % 64);
        match self.bits.get_mut(tag as usize / 64) {
            Some(word) => {
                let is_new = *word & bit == 0;
                *word |= bit;
                is_new
            }
            None => self.insert_far(tag),
        }
    }

    #[cold]
    #[inline(never)]
    fn insert_far(&mut self, tag: u32) -> bool {
        if tag >= BIT_TAGS {
            return self.others.insert(tag);
        }
        self.bits.resize(tag as usize / 64 + 1, 0);
        self.insert(tag)
    }

    /// Iterates over the tags.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let low = (0..self.bits.len() as u32 * 64).filter(|tag| self.has(*tag));
        low.chain(self.others.iter().copied())
    }

    /// Removes all tags and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.bits.fill(0);
        if !self.others.is_empty() {
            self.others.clear();
        }
    }
}

impl FromIterator<u32> for TagSet {
    fn from_iter<T: IntoIterator<Item = u32>>(tags: T) -> Self {
        let mut set = Self::default();
        tags.into_iter().for_each(|tag| _ = set.insert(tag));
        set
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_set_has_the_tags_that_a_hash_set_has(
            tags in prop::collection::vec(prop_oneof![0u32..200, 16_300u32..16_500, any::<u32>()], 0..200),
        ) {
            let (mut set, mut expected) = (TagSet::default(), HashSet::new());
            for tag in &tags {
                prop_assert_eq!(set.insert(*tag), expected.insert(*tag));
                prop_assert!(set.has(*tag) && set.has(tag ^ 1) == expected.contains(&(tag ^ 1)));
            }
            prop_assert_eq!(set.iter().collect::<HashSet<_>>(), expected);
            set.clear();
            prop_assert!(!tags.iter().any(|tag| set.has(*tag)));
        }
    }
}
