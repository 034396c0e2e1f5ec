//! A service that makes embeddings of texts.

use std::sync::Arc;

use bytes::Bytes;
use json::{Document, JsonBounds, JsonKind, Value, write_items, write_string};

use crate::base::share::Holder;
use crate::config::settings::EmbeddingsSettings;
use crate::mcp::tool_signature::ToolSignature;
use crate::mcp::wire::Object;
use crate::metrics::selection_outcome::SelectionOutcome;
use crate::outbound::environment::{Environment, EnvironmentError};
use crate::outbound::model_service::{ExchangeBounds, ModelPurpose, ModelService};

/// Most numbers of an embedding.
pub const MAX_DIMENSIONS: usize = 4096;
/// Most bytes of a number in an answer, with the comma.
const NUMBER: usize = 32;
/// Most bytes of an answer besides the numbers.
const BESIDE: usize = 64 * 1024;
/// Most bytes of the text that is made of a definition; the rest is cut.
const MAX_TEXT: usize = 2048;

/// An embedding, scaled to the length 1.
pub type Embedding = Arc<[f32]>;

/// The client of a service for embeddings.
#[derive(Debug)]
pub struct Embeddings {
    /// For requests of callers, who wait.
    requests: ModelService,
    /// For definitions, for which nobody waits.
    definitions: ModelService,
    model: Box<str>,
}

impl Embeddings {
    /// The service with these settings.
    ///
    /// # Errors
    /// If its token or the authorities for its certificate cannot be read.
    pub fn new(
        settings: &EmbeddingsSettings,
        environment: &Environment,
    ) -> Result<Self, EnvironmentError> {
        let service = |time, texts: usize, is_limited| {
            let answer = texts.saturating_mul(MAX_DIMENSIONS * NUMBER).saturating_add(BESIDE);
            let bounds = ExchangeBounds { time, answer, is_limited };
            ModelService::new(ModelPurpose::Embeddings, &settings.service, bounds, environment)
        };
        Ok(Self {
            requests: service(settings.service.timeout, 1, true)?,
            definitions: service(settings.batch_timeout, settings.batch, false)?,
            model: settings.service.model.clone(),
        })
    }

    /// The embedding of the request of a caller.
    ///
    /// # Errors
    /// What came of it instead.
    pub async fn of_request(
        &self,
        holder: &Holder,
        request: &str,
    ) -> Result<Embedding, SelectionOutcome> {
        let made = self.ask(&self.requests, holder, &[request.to_owned()]).await?;
        made.into_iter().next().ok_or(SelectionOutcome::AnswerForm)
    }

    /// The embeddings of texts of definitions, in their order.
    ///
    /// # Errors
    /// What came of it instead.
    pub async fn of_definitions(
        &self,
        holder: &Holder,
        texts: &[String],
    ) -> Result<Vec<Embedding>, SelectionOutcome> {
        self.ask(&self.definitions, holder, texts).await
    }

    /// Counts what came of a question.
    pub fn count(&self, outcome: SelectionOutcome) {
        self.requests.count(outcome);
    }

    async fn ask(
        &self,
        service: &ModelService,
        holder: &Holder,
        texts: &[String],
    ) -> Result<Vec<Embedding>, SelectionOutcome> {
        let answer = service.ask(holder, body(&self.model, texts)).await?;
        let made = read_answer(answer, texts.len());
        made.inspect_err(|outcome| service.note_unusable(*outcome))
    }
}

/// The text of a definition that an embedding is made of: what `find_tools` says of it.
#[must_use]
pub fn text_of(signature: &ToolSignature) -> String {
    let mut text = format!("{} -> {}", signature.call, signature.description);
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    text
}

/// The cosine of the angle between two embeddings; `None` if they have different numbers of dimensions, as after a change
/// of the model.
#[must_use]
pub fn cosine(one: &[f32], other: &[f32]) -> Option<f32> {
    if one.len() != other.len() || one.is_empty() {
        return None;
    }
    Some(one.iter().zip(other).map(|(one, other)| one * other).sum())
}

/// The request: <https://platform.openai.com/docs/api-reference/embeddings/create>.
fn body(model: &str, texts: &[String]) -> Bytes {
    let mut body = Vec::new();
    let mut object = Object::open(&mut body);
    object.text("model", model);
    write_items(object.key("input"), texts, |out, text| write_string(out, text));
    object.text("encoding_format", "float");
    object.close();
    body.into()
}

/// The embeddings in an answer about `count` texts: one of each, all with as many dimensions.
fn read_answer(answer: Bytes, count: usize) -> Result<Vec<Embedding>, SelectionOutcome> {
    const FORM: SelectionOutcome = SelectionOutcome::AnswerForm;
    let answer = Document::parse(answer, &JsonBounds::ANSWER).map_err(|_error| FORM)?;
    let data = answer.root().get("data").filter(|data| data.kind() == JsonKind::Array);
    let mut made: Vec<Option<Embedding>> = vec![None; count];
    for item in data.ok_or(FORM)?.items() {
        let index = item.get("index").and_then(Value::as_i64);
        let index = index.and_then(|index| usize::try_from(index).ok()).ok_or(FORM)?;
        let place = made.get_mut(index).ok_or(SelectionOutcome::UnknownNumber)?;
        if place.is_some() {
            return Err(SelectionOutcome::RepeatedNumber);
        }
        *place = Some(item.get("embedding").and_then(embedding).ok_or(FORM)?);
    }
    let made: Vec<Embedding> = made.into_iter().collect::<Option<_>>().ok_or(FORM)?;
    let dimensions = made.first().map_or(0, |first| first.len());
    if made.iter().any(|one| one.len() != dimensions) {
        return Err(FORM);
    }
    Ok(made)
}

fn embedding(numbers: Value<'_>) -> Option<Embedding> {
    if numbers.kind() != JsonKind::Array {
        return None;
    }
    let mut read = Vec::new();
    for number in numbers.items() {
        if read.len() == MAX_DIMENSIONS {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "an embedding need not be exact")]
        read.push(number.as_f64()? as f32);
    }
    let length = read.iter().map(|number| number * number).sum::<f32>().sqrt();
    if !length.is_normal() {
        return None;
    }
    Some(read.into_iter().map(|number| number / length).collect())
}

#[cfg(test)]
mod tests {
    use super::{cosine, read_answer};
    use crate::metrics::selection_outcome::SelectionOutcome::{
        AnswerForm, RepeatedNumber, UnknownNumber,
    };

    #[test]
    fn an_answer_has_one_embedding_for_each_text_or_is_of_no_use() {
        let good = r#"{"data":[{"index":1,"embedding":[0,2]},{"index":0,"embedding":[3,4]}]}"#;
        let made = read_answer(good.into(), 2).unwrap();
        assert_eq!((&*made[0], &*made[1]), (&[0.6, 0.8][..], &[0.0, 1.0][..]));
        assert!((cosine(&made[0], &made[1]).unwrap() - 0.8).abs() < 1e-6);
        assert_eq!(cosine(&made[0], &[1.0]), None);
        for (answer, expected) in [
            (r#"{"data":[{"index":0,"embedding":[1]}]}"#, AnswerForm),
            (
                r#"{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}"#,
                RepeatedNumber,
            ),
            (
                r#"{"data":[{"index":0,"embedding":[1]},{"index":2,"embedding":[1]}]}"#,
                UnknownNumber,
            ),
            (r#"{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,2]}]}"#, AnswerForm),
            (r#"{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[0]}]}"#, AnswerForm),
            (r#"{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":["1"]}]}"#, AnswerForm),
            (
                r#"{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1e300]}]}"#,
                AnswerForm,
            ),
            (r#"{"data":{}}"#, AnswerForm),
            ("no", AnswerForm),
        ] {
            assert_eq!(read_answer(answer.into(), 2).unwrap_err(), expected, "{answer}");
        }
        let long = format!(r#"{{"data":[{{"index":0,"embedding":[{}1]}}]}}"#, "1,".repeat(4096));
        assert_eq!(read_answer(long.into(), 1).unwrap_err(), AnswerForm);
    }
}
