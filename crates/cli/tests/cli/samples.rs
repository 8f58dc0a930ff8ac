//! Small data sets, made up on the spot.

use std::path::{Path, PathBuf};

use crate::program::Place;

/// Where the program's own digits lie in the source tree, as real compressed files to be cut and mixed up.
pub(crate) fn digits_assets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/assets/optdigits")
}

/// The bytes of an IDX file.
pub(crate) fn idx(dimensions: &[usize], values: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, dimensions.len() as u8];
    dimensions.iter().for_each(|&n| bytes.extend((n as u32).to_be_bytes()));
    bytes.extend(values);
    bytes
}

/// Ten classes of square pictures, in each a row of light at the class's own height.
pub(crate) fn idx_set(place: &Place, name: &str, side: usize, n_train: usize, n_test: usize) -> PathBuf {
    for (part, n) in [("train", n_train), ("t10k", n_test)] {
        let pixel = |i: usize| if i % (side * side) / side == i / (side * side) % 10 * side / 10 { 200 } else { 10 };
        let pixels: Vec<u8> = (0..n * side * side).map(pixel).collect();
        let labels: Vec<u8> = (0..n).map(|i| (i % 10) as u8).collect();
        place.write(&format!("{name}/{part}-images-idx3-ubyte"), idx(&[n, side, side], &pixels));
        place.write(&format!("{name}/{part}-labels-idx1-ubyte"), idx(&[n], &labels));
    }
    place.path(name)
}

/// NumPy arrays: bright squares in pictures of bytes, and where they are.
pub(crate) fn masks(place: &Place, name: &str, n: usize) -> PathBuf {
    const SIDE: usize = 16;
    let is_inside = |at: usize| {
        let (square, row, column) = (at / (SIDE * SIDE) % 8, at / SIDE % SIDE, at % SIDE);
        (square..square + 6).contains(&row) && (square..square + 6).contains(&column)
    };
    for (array, bright, dark) in [("x", 200, 40), ("y", 1, 0)] {
        let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({n}, {SIDE}, {SIDE}), }}\n");
        let length = u16::try_from(header.len()).expect("a header is short").to_le_bytes();
        let numbers: Vec<u8> = (0..n * SIDE * SIDE).map(|at| if is_inside(at) { bright } else { dark }).collect();
        let bytes = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &numbers].concat();
        place.write(&format!("{name}/{array}.npy"), bytes);
    }
    place.path(name)
}

/// A table of two features and as many classes as wanted, which lie side by side on a line.
pub(crate) fn csv(place: &Place, name: &str, n_rows: usize, n_classes: usize) -> PathBuf {
    let row = |i: usize| format!("{}.{},{},c{}\n", i % n_classes, i % 7, i % 5, i % n_classes);
    place.write(name, (0..n_rows).map(row).collect::<String>())
}

/// A folder of pictures for each of two classes.
pub(crate) fn pictures(place: &Place, name: &str, n_each: usize) -> PathBuf {
    for (class, light) in [("bright", 230), ("dark", 20)] {
        let folder = place.path(name).join(class);
        std::fs::create_dir_all(&folder).expect("a folder");
        for i in 0..n_each {
            let picture = image::RgbImage::from_pixel(12, 10, image::Rgb([light, light, light - i as u8]));
            picture.save(folder.join(format!("{i}.png"))).expect("a picture");
        }
    }
    place.path(name)
}

/// Recordings of ten tones, named by their classes.
pub(crate) fn recordings(place: &Place, name: &str) -> PathBuf {
    const RATE: u32 = 8000;
    for (class, k) in (0..10_u32).flat_map(|class| (0..12).map(move |k| (class, k))) {
        let sample = |i: u32| (f64::from(i * (class + 2 + k % 2)) * 0.1).sin() * 8000.0;
        let samples: Vec<u8> = (0..RATE / 4).flat_map(|i| (sample(i) as i16).to_le_bytes()).collect();
        let n_bytes = samples.len() as u32;
        let mut wav = b"RIFF".to_vec();
        wav.extend((36 + n_bytes).to_le_bytes());
        wav.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
        wav.extend([RATE.to_le_bytes(), (2 * RATE).to_le_bytes()].concat());
        wav.extend(b"\x02\0\x10\0data");
        wav.extend(n_bytes.to_le_bytes());
        wav.extend(samples);
        place.write(&format!("{name}/{class}_{k}.wav"), wav);
    }
    place.path(name)
}
