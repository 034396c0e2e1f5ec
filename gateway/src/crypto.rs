//! Keys, certificates, signed tokens and sealed values.

pub mod sealer;
pub mod x509;
pub mod pem;
pub mod jwk;
pub mod jws_signer;
pub mod jose;
