//! A key for one direction: it seals or opens one record after the other.

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rustls::crypto::cipher::{Iv, Nonce as TlsNonce, make_tls13_aad};
use rustls::{ConnectionTrafficSecrets, Error, PeerMisbehaved};

use super::{APPLICATION_DATA, HEADER_LEN, MAX_PLAIN_LEN, MAX_SEALED_LEN, OVERHEAD, TAG_LEN};

/// A key, and the number of the next record, from which its nonce follows.
pub(crate) struct Key {
    cipher: LessSafeKey,
    iv: Iv,
    sequence: u64,
}

/// Where a record's plain bytes are.
pub(super) enum Plain<'a> {
    /// Somewhere else.
    At(&'a [u8]),
    /// Already where the record will be, behind its header: so many.
    InPlace(usize),
}

impl Plain<'_> {
    fn len(&self) -> usize {
        match self {
            Self::At(bytes) => bytes.len(),
            Self::InPlace(n_bytes) => *n_bytes,
        }
    }
}

/// What was in a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// What the plain bytes mean.
    pub(super) kind: u8,
    /// How many there are, from the end of the header on.
    pub(super) n_plain: usize,
}

impl Key {
    /// A key as rustls tells it, with the number of the record that comes next.
    pub(crate) fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Self, Error> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(Error::General("an unknown cipher was agreed on".into())),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| Error::EncryptError)?;
        Ok(Self { cipher: LessSafeKey::new(key), iv, sequence })
    }

    /// How many records it has been used for.
    pub(super) fn n_used(&self) -> u64 {
        self.sequence
    }

    /// Seals a record at the front of `room`; returns its length.
    pub(super) fn seal(&mut self, plain: &Plain<'_>, kind: u8, room: &mut [u8]) -> Result<usize, Error> {
        let n_plain = plain.len();
        if n_plain > MAX_PLAIN_LEN || room.len() < n_plain + OVERHEAD {
            return Err(Error::EncryptError);
        }
        let nonce = self.next_nonce().ok_or(Error::EncryptError)?;
        let header = make_tls13_aad(n_plain + 1 + TAG_LEN);
        let (to_header, sealed) = room[..n_plain + OVERHEAD].split_at_mut(HEADER_LEN);
        to_header.copy_from_slice(&header);
        let (sealed, kind_and_tag) = sealed.split_at_mut(n_plain);
        let aad = Aad::from(header);
        match plain {
            Plain::At(bytes) => self.cipher.seal_out_of_place_scatter(nonce, aad, bytes, sealed, &[kind], kind_and_tag),
            Plain::InPlace(_) => self.cipher.seal_in_place_scatter(nonce, aad, sealed, &[kind], kind_and_tag),
        }
        .map_err(|_| Error::EncryptError)?;
        Ok(n_plain + OVERHEAD)
    }

    /// Opens a record in its place, which is behind the header.
    pub(super) fn open(&mut self, header: [u8; HEADER_LEN], record: &mut [u8]) -> Result<Opened, Error> {
        let nonce = self.next_nonce().ok_or(Error::DecryptError)?;
        let opened = self.cipher.open_in_place(nonce, Aad::from(header), record).map_err(|_| Error::DecryptError)?;
        if opened.len() > MAX_PLAIN_LEN + 1 {
            return Err(Error::PeerSentOversizedRecord);
        }
        // The last byte that is not zero says what it is; zeros behind it are padding.
        let n_plain = opened.iter().rposition(|byte| *byte != 0);
        let n_plain = n_plain.ok_or(PeerMisbehaved::IllegalTlsInnerPlaintext)?;
        Ok(Opened { kind: opened[n_plain], n_plain })
    }

    /// Each is for one record only, whether that succeeds or not. None is left when the numbers are used up.
    fn next_nonce(&mut self) -> Option<Nonce> {
        let nonce = TlsNonce::new(&self.iv, self.sequence);
        self.sequence = self.sequence.checked_add(1)?;
        Some(Nonce::assume_unique_for_key(nonce.0))
    }
}

/// How long the record is that begins with this header, without the header itself. Only records that are sealed may come.
pub(super) fn n_sealed(header: [u8; HEADER_LEN]) -> Result<usize, Error> {
    let [kind, _, _, high, low] = header;
    let n_sealed = usize::from(u16::from_be_bytes([high, low]));
    if kind != APPLICATION_DATA {
        return Err(Error::DecryptError);
    }
    if n_sealed > MAX_SEALED_LEN {
        return Err(Error::PeerSentOversizedRecord);
    }
    Ok(n_sealed)
}

#[cfg(test)]
mod tests {
    use super::{Key, Opened, Plain, n_sealed};
    use crate::records::{ALERT, APPLICATION_DATA, CLOSE_NOTIFY, MAX_PLAIN_LEN, MAX_SEALED_LEN};
    use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    use data_encoding::HEXLOWER;
    use rustls::crypto::cipher::{Iv, make_tls13_aad};

    const KEY: &str = "17422dda596ed5d9acd890e3c63f5051";
    const IV: &str = "5b78923dee08579033e523d9";

    fn bytes(hexadecimal: &str) -> Vec<u8> {
        HEXLOWER.decode(hexadecimal.as_bytes()).unwrap()
    }

    fn key(sequence: u64) -> Key {
        let iv: [u8; 12] = bytes(IV).try_into().unwrap();
        // Only rustls itself can make its keys for AES-128, so the cipher is put in by hand.
        Key { cipher: cipher(), iv: Iv::from(iv), sequence }
    }

    fn cipher() -> LessSafeKey {
        LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &bytes(KEY)).unwrap())
    }

    /// A record with anything in it, made without our own code but for the nonce of the first.
    fn sealed(inner: &[u8]) -> Vec<u8> {
        let header = make_tls13_aad(inner.len() + 16);
        let nonce = Nonce::try_assume_unique_for_key(&bytes(IV)).unwrap();
        let mut sealed = inner.to_vec();
        cipher().seal_in_place_append_tag(nonce, Aad::from(header), &mut sealed).unwrap();
        [&header[..], &sealed].concat()
    }

    fn open(key: &mut Key, record: &[u8]) -> Result<(Opened, Vec<u8>), rustls::Error> {
        let (header, rest) = record.split_first_chunk().unwrap();
        assert_eq!(n_sealed(*header)?, rest.len());
        let mut rest = rest.to_vec();
        let opened = key.open(*header, &mut rest)?;
        rest.truncate(opened.n_plain);
        Ok((opened, rest))
    }

    #[test]
    fn records_are_those_of_the_standard_s_example() {
        // RFC 8448, chapter 3: what the client says after the handshake.
        let data = bytes(
            "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b62974e1f\
             5a6292a2977014bd1e3deae63aeebb21694915e4",
        );
        let goodbye = bytes("1703030013c9872760655666b74d7ff1153efd6db6d0b0e3");
        let plain: Vec<u8> = (0..50).collect();

        let mut sender = key(0);
        let mut room = [0; 100];
        let n_bytes = sender.seal(&Plain::At(&plain), APPLICATION_DATA, &mut room).unwrap();
        assert_eq!(&room[..n_bytes], data);
        room[5..7].copy_from_slice(&CLOSE_NOTIFY);
        let n_bytes = sender.seal(&Plain::InPlace(2), ALERT, &mut room).unwrap();
        assert_eq!(&room[..n_bytes], goodbye);

        let mut receiver = key(0);
        let (opened, heard) = open(&mut receiver, &data).unwrap();
        assert_eq!((opened.kind, heard), (APPLICATION_DATA, plain));
        let (opened, heard) = open(&mut receiver, &goodbye).unwrap();
        assert_eq!((opened.kind, heard.as_slice()), (ALERT, &CLOSE_NOTIFY[..]));
    }

    #[test]
    fn nonces_are_the_iv_with_the_number_in_its_last_eight_bytes() {
        let iv = bytes(IV);
        for sequence in [0, 1, 255, 256, 0x0123_4567_89ab_cdef, u64::MAX - 1] {
            let mut expected = iv.clone();
            expected[4..].iter_mut().zip(sequence.to_be_bytes()).for_each(|(byte, part)| *byte ^= part);
            assert_eq!(key(sequence).next_nonce().unwrap().as_ref(), expected.as_slice());
        }
    }

    #[test]
    fn a_key_does_not_count_past_its_last_number() {
        let mut last = key(u64::MAX);
        let mut room = [0; 100];
        for _ in 0..3 {
            assert!(last.seal(&Plain::At(b"more"), APPLICATION_DATA, &mut room).is_err());
            assert!(open(&mut last, &sealed(b"more\x17")).is_err());
        }
        assert_eq!(room, [0; 100]);
    }

    #[test]
    fn padding_is_taken_off() {
        for n_padding in [0, 1, 200] {
            let inner = [&b"zeros\0\0in it\0"[..], &[APPLICATION_DATA], &vec![0; n_padding]].concat();
            let (opened, heard) = open(&mut key(0), &sealed(&inner)).unwrap();
            assert_eq!((opened.kind, heard.as_slice()), (APPLICATION_DATA, &b"zeros\0\0in it\0"[..]));
        }
        // Nothing but padding has no type.
        for n_padding in [0, 1, 200] {
            assert!(open(&mut key(0), &sealed(&vec![0; n_padding])).is_err());
        }
    }

    #[test]
    fn lengths_are_those_of_the_standard() {
        let longest = [vec![7; MAX_PLAIN_LEN], vec![APPLICATION_DATA]].concat();
        assert_eq!(open(&mut key(0), &sealed(&longest)).unwrap().0.n_plain, MAX_PLAIN_LEN);
        // One byte more, be it padding.
        for last in [0, APPLICATION_DATA] {
            let too_long = [&longest[..], &[last]].concat();
            assert_eq!(open(&mut key(0), &sealed(&too_long)), Err(rustls::Error::PeerSentOversizedRecord));
        }
        let header = |kind, n_sealed: usize| [kind, 3, 3, (n_sealed >> 8) as u8, n_sealed as u8];
        assert_eq!(n_sealed(header(APPLICATION_DATA, MAX_SEALED_LEN)), Ok(MAX_SEALED_LEN));
        assert!(n_sealed(header(APPLICATION_DATA, MAX_SEALED_LEN + 1)).is_err());
        assert!(n_sealed(header(ALERT, 2)).is_err());

        let mut room = vec![0; MAX_SEALED_LEN + 100];
        assert!(key(0).seal(&Plain::At(&longest), APPLICATION_DATA, &mut room).is_err());
        assert!(key(0).seal(&Plain::At(&[1; 100]), APPLICATION_DATA, &mut room[..121]).is_err());
        // What is shorter than a tag cannot be opened.
        for n_bytes in 0..17 {
            assert!(key(0).open(header(APPLICATION_DATA, n_bytes), &mut room[..n_bytes]).is_err());
        }
    }
}
