//! Who looks for a swarm tries all addresses that it knows.

use nettorrent_net::address::Address;
use nettorrent_net::ask::{AskError, ask_any};
use nettorrent_net::endpoint::{Endpoint, Settings};
use nettorrent_net::founder::Founder;
use nettorrent_net::handshake::{Encryption, Terms};
use nettorrent_net::hello::Purpose;
use nettorrent_net::service::{Answer, Question};
use nettorrent_net::tcp::Tcp;
use nettorrent_net::ticket::Secret;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::pairs::{End, founder, incoming, settings};

fn visitor(encryption: Encryption) -> Terms {
    Terms { encryption, ..Terms::new(founder().visitor(0).unwrap(), Purpose::Observer) }
}

/// Somebody who hangs up on everybody.
async fn hangs_up() -> Address {
    says(b"").await
}

/// Somebody who says this to everybody, and hangs up.
async fn says(words: &'static [u8]) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().into();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // Who was told may be gone.
            let _ = stream.write_all(words).await;
        }
    });
    address
}

/// A peer of another swarm; it lives as long as the endpoint.
async fn stranger(encryption: Encryption) -> Endpoint {
    let identity = Founder::from_secret(&Secret::from_bytes([1; 32])).member(3).unwrap();
    Endpoint::bind(Settings { identity, ..settings(3, encryption) }).await.unwrap().0
}

/// A peer that answers one question.
async fn answers(encryption: Encryption) -> Address {
    let (endpoint, mut arrivals) = Endpoint::bind(settings(0, encryption)).await.unwrap();
    let address = endpoint.local_address().clone();
    tokio::spawn(async move {
        let mut end = End::of(incoming(&mut arrivals).await);
        end.frame().await;
        end.link.say(&Answer::Probe(vec![7]));
        end.link.drained_to(0).await;
        drop(endpoint);
    });
    address
}

#[tokio::test]
async fn who_hangs_up_or_is_of_another_swarm_does_not_end_the_search() {
    for encryption in [Encryption::On, Encryption::Off] {
        let other = stranger(encryption).await;
        let addresses = [hangs_up().await, other.local_address().clone(), answers(encryption).await];
        let answered = ask_any(&Tcp, &visitor(encryption), &addresses, &Question::Status).await;
        assert_eq!(answered.unwrap().0, Answer::Probe(vec![7]));
    }
}

#[tokio::test]
async fn whoever_speaks_otherwise_or_not_at_all_does_not_end_the_search() {
    // It takes calls, and never looks at them.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for encryption in [Encryption::On, Encryption::Off] {
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let addresses = [
            silent.local_addr().unwrap().into(),
            nobody.into(),
            says(b"HTTP/1.1 400 Bad Request\r\n\r\n").await,
            says(&[0; 1 << 16]).await,
            says(&[0xff; 1 << 16]).await,
            answers(encryption).await,
        ];
        let answered = ask_any(&Tcp, &visitor(encryption), &addresses, &Question::Status).await;
        assert_eq!(answered.unwrap().0, Answer::Probe(vec![7]));
    }
}

#[tokio::test]
async fn what_each_address_has_said_is_told() {
    for encryption in [Encryption::On, Encryption::Off] {
        let others = [stranger(encryption).await, stranger(encryption).await];
        let of_others: Vec<Address> = others.iter().map(|other| other.local_address().clone()).collect();
        let terms = visitor(encryption);
        let error = ask_any(&Tcp, &terms, &of_others, &Question::Status).await.unwrap_err();
        assert!(matches!(error, AskError::OtherSwarm(_)), "{error}");
        let all: Vec<Address> = of_others.iter().cloned().chain([hangs_up().await]).collect();
        let error = ask_any(&Tcp, &terms, &all, &Question::Status).await.unwrap_err();
        assert!(matches!(error, AskError::Nobody(_)), "{error}");
        let text = error.to_string();
        assert!(all.iter().all(|address| text.contains(&address.to_string())), "{text}");
    }
}
