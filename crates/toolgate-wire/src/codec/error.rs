//! Reads and writes JSON-RPC errors.

use super::fields::ObjectReader;
use super::object::{ObjectWriter, WriteJson, nest};
use crate::{Dialect, ProtocolError, ProtocolVersion, RemoteError, RequestId};

/// Appends a whole error message. Without an id the member is left out where
/// the edition allows that, and `null` where it does not.
pub fn write_protocol_error(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    id: Option<&RequestId>,
    fault: &ProtocolError,
) {
    let object = ObjectWriter::open(out, version).field("jsonrpc", "2.0");
    let object = match id {
        None if version.behavior().error_id_optional => object,
        id => object.field("id", &id),
    };
    object.field("error", fault).close();
}

/// Appends a whole error message for a client that names no edition.
pub fn write_unversioned_error(
    out: &mut Vec<u8>,
    dialect: &Dialect,
    id: Option<&RequestId>,
    fault: &ProtocolError,
) {
    let version = ProtocolVersion::FALLBACK;
    let error = nest(|object| {
        object
            .field("code", &dialect.code(fault))
            .field("message", &dialect.message(fault))
            .optional("data", &dialect.data(fault))
    });
    ObjectWriter::open(out, version).field("jsonrpc", "2.0").field("id", &id).field("error", &error).close();
}

impl WriteJson for ProtocolError {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        ObjectWriter::open(out, version)
            .field("code", &self.code(version))
            .field("message", self.message())
            .optional("data", &self.data())
            .close();
    }
}

/// An error object within another message.
pub(super) fn read_protocol_error(
    version: ProtocolVersion,
    part: &ObjectReader<'_>,
) -> Result<ProtocolError, ProtocolError> {
    let [code, message, data] = &part.pick(["code", "message", "data"]);
    let (code, message, data) = (code.integer()?, message.string()?, data.maybe_json());
    Ok(ProtocolError::from_remote(RemoteError { code, message, data }, version))
}
