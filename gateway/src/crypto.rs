//! Keys, certificates and signed tokens.

pub mod sealer;
pub mod x509;
pub mod pem;
pub mod jose;
