//! How fast this machine makes and reads messages.

use std::hint::black_box;
use std::time::{Duration, Instant};

use nettorrent_swarm::codec::Codec;
use nettorrent_swarm::collective::SEGMENT_LEN;
use nettorrent_swarm::strategy::Malformed;

/// How many bytes of messages one thread makes or reads in a second: a vector of this length is written, checked and added to
/// another, message by message, for so long and at least twice. The first time does not count.
pub(crate) fn message_rate(n_values: usize, measure_for: Duration) -> Result<f64, Malformed> {
    let numbers = vec![1.0; n_values.max(1)];
    let mut sum = vec![0.0; numbers.len()];
    exchange(&numbers, &mut sum)?;
    let (began, mut n_times) = (Instant::now(), 0_u32);
    while n_times == 0 || began.elapsed() < measure_for {
        exchange(&numbers, &mut sum)?;
        n_times += 1;
    }
    // Each number is four bytes, which are made and then read.
    let n_bytes = 8.0 * numbers.len() as f64 * f64::from(n_times);
    Ok(n_bytes / began.elapsed().as_secs_f64().max(1e-9))
}

fn exchange(numbers: &[f32], sum: &mut [f32]) -> Result<(), Malformed> {
    for (numbers, sum) in numbers.chunks(SEGMENT_LEN).zip(sum.chunks_mut(SEGMENT_LEN)) {
        let message = black_box(Codec::F32.encode(black_box(numbers)));
        Codec::F32.check_finite(&message, numbers.len())?;
        Codec::F32.decode_add(&message, sum)?;
        black_box(&mut *sum);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{exchange, message_rate};
    use std::time::Duration;

    #[test]
    fn what_is_timed_is_a_sum_of_messages() {
        let numbers: Vec<f32> = (0..100_000).map(|x| x as f32).collect();
        let mut sum = numbers.clone();
        exchange(&numbers, &mut sum).unwrap();
        assert!(numbers.iter().zip(&sum).all(|(number, sum)| 2.0 * number == *sum));
        assert!(exchange(&[f32::NAN], &mut [0.0]).is_err(), "messages are checked");
        let rate = message_rate(1000, Duration::ZERO).unwrap();
        assert!(rate.is_finite() && rate > 1e3, "{rate}");
    }
}
