//! How the linker makes an extension module depends on the system.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
