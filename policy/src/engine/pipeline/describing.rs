//! Inspects what a client says of itself, before any server receives it.

use std::sync::Arc;

use detection::content::ChosenPart;
use detection::inspect::Finding;
use json::{Document, Fragment, JsonBounds, JsonError};
use policy_core::base::work::{WorkBudget, WorkLimits};
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;

use super::Policy;

/// Proof that a client's description of itself was inspected for the servers that may receive it. Only
/// [`Policy::describable`] mints one, and it cannot be copied.
///
/// ```
/// # fn read(description: policy::engine::pipeline::SendableDescription) {
/// let capabilities = description.capabilities();
/// # }
/// ```
///
/// ```compile_fail,E0451
/// # fn forge(capabilities: Box<str>) {
/// let said = policy::engine::pipeline::SendableDescription { capabilities, info: None }; // private fields
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a description that is not sent leaves the servers without one"]
pub struct SendableDescription {
    capabilities: Box<str>,
    info: Option<Box<str>>,
}

impl SendableDescription {
    /// The `capabilities` object, as JSON.
    #[must_use]
    pub fn capabilities(&self) -> &str {
        &self.capabilities
    }

    /// The `clientInfo` object, as JSON, if there is one.
    #[must_use]
    pub fn info(&self) -> Option<&str> {
        self.info.as_deref()
    }
}

/// Why a client's description must not be sent.
#[derive(Debug)]
pub enum DescriptionError {
    /// It is not JSON within the bounds of a message.
    Unread(JsonError),
    /// A detector found something for which a message is withheld.
    Stopped(Finding),
}

impl From<JsonError> for DescriptionError {
    fn from(error: JsonError) -> Self {
        Self::Unread(error)
    }
}

impl Policy {
    /// What a client says of itself, as JSON, as it may be sent to each of `servers`, with the findings in it. What is
    /// removed for one server is removed for all.
    ///
    /// # Errors
    /// If one of the servers must not receive it.
    pub fn describable(
        &self,
        principal: &Principal,
        servers: &[&ServerName],
        capabilities: &str,
        info: Option<&str>,
        work: WorkLimits,
    ) -> (Result<SendableDescription, DescriptionError>, Vec<Finding>) {
        let mut found = Vec::new();
        let mut said =
            SendableDescription { capabilities: capabilities.into(), info: info.map(Into::into) };
        for server in servers {
            match self.described_to(principal, server, &said, work, &mut found) {
                Ok(released) => said = released,
                Err(error) => return (Err(error), found),
            }
        }
        (Ok(said), found)
    }

    fn described_to(
        &self,
        principal: &Principal,
        server: &ServerName,
        said: &SendableDescription,
        work: WorkLimits,
        all: &mut Vec<Finding>,
    ) -> Result<SendableDescription, DescriptionError> {
        // A value may be split across the two parts.
        let parts = [said.info(), Some(said.capabilities())].into_iter().flatten();
        let read = |text: &str| Document::parse(text.to_owned().into(), &JsonBounds::MESSAGE);
        let parts = parts.map(read).collect::<Result<Vec<_>, _>>()?;
        let parts: Vec<_> = parts.iter().map(|part| ChosenPart::Members(part.root())).collect();
        // A description is short, so its budget does not depend on its length.
        let (joined, found) = self.joinable(principal, server, &parts, &WorkBudget::of(0, work));
        all.extend(found);
        joined.map_err(DescriptionError::Stopped)?;
        let mut look = |text: &str| {
            let part = Fragment::whole(Arc::new(read(text)?));
            let (sent, found) = self.answerable(principal, server, part, &WorkBudget::of(0, work));
            all.extend(found);
            let sent = sent.map_err(DescriptionError::Stopped)?;
            Ok::<Box<str>, DescriptionError>(sent.value().raw().into())
        };
        let capabilities = look(said.capabilities())?;
        let info = said.info().map(look).transpose()?;
        Ok(SendableDescription { capabilities, info })
    }
}
