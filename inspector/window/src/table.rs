//! A table of very many rows: only what is visible is laid out, cells are painted, the header stays.

use eframe::egui::text::{LayoutJob, TextFormat, TextWrapping};
use eframe::egui::{
    self, Align2, Color32, CursorIcon, FontId, Id, Painter, Pos2, Rect, Response, Role, ScrollArea, Sense,
    Stroke, Ui, Vec2, WidgetInfo, pos2, vec2,
};

use super::marks;
use super::theme::{self, Palette};
use model::text;

/// Space left and right of a cell's content.
const PAD: f32 = 6.0;

/// Height of the header.
const HEADER: f32 = 24.0;

/// Room for the scroll bar below the rows.
const SCROLL_BAR: f32 = 14.0;

const NARROWEST: f32 = 36.0;

/// One column.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// What stands in the header; also the column's name.
    pub title: &'static str,
    /// What the header says on hover.
    pub hint: &'static str,
    pub width: f32,
    /// Takes what the others leave.
    pub grows: bool,
    /// Numbers stand at the right.
    pub right: bool,
    /// Its user wants to see it.
    pub shown: bool,
    /// It would say the same of every row at present, so it is left out.
    pub idle: bool,
}

/// How rows are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sort {
    /// Index of the column.
    pub column: usize,
    pub descending: bool,
}

/// What the rows are.
pub trait Rows {
    fn len(&self) -> usize;
    /// Stays the same for the same thing while rows move.
    fn key(&self, row: usize) -> u64;
    /// What a screen reader says.
    fn name(&self, row: usize) -> String;
    /// A colour laid over the row's ground, for rows that changed or need attention.
    fn tint(&self, row: usize) -> Option<Color32>;
    fn paint(&self, cell: &Cell<'_>);
    /// What the secondary button offers.
    fn menu(&self, row: usize, ui: &mut Ui);
    /// Rows that are no rows but headings cannot be clicked.
    fn is_heading(&self, row: usize) -> bool;
}

/// Where and how one cell is to be painted.
pub struct Cell<'a> {
    pub row: usize,
    /// Index of the column.
    pub column: usize,
    pub rect: Rect,
    pub painter: &'a Painter,
    pub palette: &'a Palette,
    pub right: bool,
}

impl Cell<'_> {
    /// Paints text in one line, cut with `…` if it is too long.
    pub fn text(&self, text: &str, font: FontId, colour: Color32) {
        self.text_from(0.0, text, font, colour);
    }

    /// The same, with space for something else at the left.
    pub fn text_from(&self, left: f32, text: &str, font: FontId, colour: Color32) {
        if text.is_empty() {
            return;
        }
        let galley = one_line(self.painter, text, font, colour, self.rect.width() - left);
        let x = if self.right { self.rect.right() - galley.size().x } else { self.rect.left() + left };
        let at = pos2(x, self.rect.center().y - galley.size().y / 2.0);
        self.painter.galley(at, galley, colour);
    }

    /// Paints numbers and names, whose letters are all of one width.
    pub fn mono(&self, text: &str, colour: Color32) {
        self.text(text, FontId::monospace(theme::MONO - 0.5), colour);
    }

    /// Paints ordinary text.
    pub fn body(&self, text: &str, colour: Color32) {
        self.text(text, FontId::proportional(theme::BODY), colour);
    }
}

/// Lays text out in one line of at most this width.
pub fn one_line(
    painter: &Painter,
    text: &str,
    font: FontId,
    colour: Color32,
    width: f32,
) -> std::sync::Arc<egui::Galley> {
    let mut job = LayoutJob::single_section(text.to_owned(), TextFormat::simple(font, colour));
    job.wrap = TextWrapping::truncate_at_width(width.max(8.0));
    painter.layout_job(job)
}

/// Lays a name out in one line of at most this width. A long one loses its middle: names of locks are told
/// apart by their end, and belong together by their beginning. For letters that are all of one width.
pub fn one_name(
    painter: &Painter,
    name: &str,
    font: FontId,
    colour: Color32,
    width: f32,
) -> std::sync::Arc<egui::Galley> {
    let whole = painter.layout_no_wrap(name.to_owned(), font.clone(), colour);
    if whole.size().x <= width {
        return whole;
    }
    let columns = text::width(name);
    let fit = (width / whole.size().x * columns as f32) as usize;
    one_line(painter, &text::fit_middle(name, fit), font, colour, width)
}

/// How the table stands between frames, and how it is to be shown.
#[derive(Debug, Clone)]
pub struct Table {
    pub columns: Vec<Column>,
    pub sort: Option<Sort>,
    pub row_height: f32,
}

/// What somebody did to the table.
#[derive(Debug, Default)]
pub struct Shown {
    pub clicked: Option<usize>,
    pub double_clicked: Option<usize>,
    /// The pointer is over this cell.
    pub hovered: Option<(usize, usize, Response)>,
    /// The order was changed.
    pub sorted: bool,
    /// How many rows fit.
    pub page: usize,
}

impl Table {
    /// Shows the rows. `scroll_to` brings a row into sight.
    pub fn show(
        &mut self,
        ui: &mut Ui,
        id: &str,
        rows: &impl Rows,
        selected: Option<usize>,
        scroll_to: Option<usize>,
        palette: &Palette,
    ) -> Shown {
        let mut shown = Shown::default();
        let id = ui.scope_id().with(id);
        ui.spacing_mut().item_spacing = Vec2::ZERO;
        let (header, _) = ui.allocate_exact_size(vec2(ui.available_width(), HEADER), Sense::hover());
        let bar = ui.spacing().scroll.bar_width + 4.0;
        let widths = self.widths(header.width() - bar);
        let total: f32 = widths.iter().map(|(_, width)| width).sum();
        let height = self.row_height;
        let mut area = ScrollArea::both().id_salt(id).auto_shrink(false);
        let body_height = ui.available_height();
        shown.page = ((body_height / height) as usize).max(1);
        if let Some(row) = scroll_to {
            let now = egui::scroll_area::State::load(ui.ctx(), ui.make_persistent_id(id))
                .map_or(0.0, |state| state.clamped_offset().y);
            let top = row as f32 * height;
            // A row of margin, so that one sees that it goes on.
            if top < now + height {
                area = area.vertical_scroll_offset((top - height).max(0.0));
            } else if top + 2.0 * height > now + body_height {
                area = area.vertical_scroll_offset((top + 2.0 * height - body_height).max(0.0));
            }
        }
        let out = area.show_viewport(ui, |ui, viewport| {
            ui.set_width(total);
            ui.set_height(rows.len() as f32 * height);
            let origin = ui.max_rect().min;
            let first = (viewport.min.y / height).floor().max(0.0) as usize;
            let last = ((viewport.max.y / height).ceil().max(0.0) as usize).min(rows.len());
            for row in first..last {
                let top = origin.y + row as f32 * height;
                let rect =
                    Rect::from_min_size(pos2(origin.x, top), vec2(total.max(viewport.width()), height));
                self.row(ui, id, rows, row, rect, &widths, selected == Some(row), palette, &mut shown);
            }
        });
        self.header(ui, id, header, &widths, -out.state.clamped_offset().x, palette, &mut shown);
        shown
    }

    /// The height at which so many rows are seen at once.
    pub fn height(&self, rows: usize) -> f32 {
        HEADER + rows as f32 * self.row_height + SCROLL_BAR
    }

    /// Indices and widths of the columns that are shown.
    fn widths(&self, available: f32) -> Vec<(usize, f32)> {
        let shown = || self.columns.iter().enumerate().filter(|(_, column)| column.shown && !column.idle);
        let taken: f32 = shown().map(|(_, column)| column.width).sum();
        let growing = shown().filter(|(_, column)| column.grows).count().max(1) as f32;
        let more = ((available - taken) / growing).max(0.0);
        shown()
            .map(|(at, column)| (at, (column.width + if column.grows { more } else { 0.0 }).floor()))
            .collect()
    }

    #[expect(clippy::too_many_arguments, reason = "a step of one function, named for reading")]
    fn row(
        &self,
        ui: &mut Ui,
        id: Id,
        rows: &impl Rows,
        row: usize,
        rect: Rect,
        widths: &[(usize, f32)],
        selected: bool,
        palette: &Palette,
        shown: &mut Shown,
    ) {
        let painter = ui.painter();
        if rows.is_heading(row) {
            painter.rect_filled(rect, 0.0, palette.panel);
            let inner = rect.shrink2(vec2(PAD, 0.0));
            rows.paint(&Cell { row, column: usize::MAX, rect: inner, painter, palette, right: false });
            let heading = ui.interact(rect, id.with(rows.key(row)), Sense::hover());
            heading.widget_info(|| WidgetInfo::labeled(Role::RowHeader, true, rows.name(row)));
            return;
        }
        let response = ui.interact(rect, id.with(rows.key(row)), Sense::click());
        let painter = ui.painter();
        let ground = if selected {
            Some(palette.selected)
        } else if response.hovered() {
            Some(palette.hover)
        } else {
            (row % 2 == 1).then_some(palette.stripe)
        };
        if let Some(ground) = ground {
            painter.rect_filled(rect, 0.0, ground);
        }
        if let Some(tint) = rows.tint(row) {
            painter.rect_filled(rect, 0.0, tint);
        }
        if selected {
            let edge = Rect::from_min_size(rect.min, vec2(3.0, rect.height()));
            painter.rect_filled(edge, 0.0, palette.accent);
        }
        let pointer = response.hover_pos();
        let mut left = rect.left();
        for &(column, width) in widths {
            let cell = Rect::from_min_size(pos2(left, rect.top()), vec2(width, rect.height()));
            if ui.clip_rect().intersects(cell) {
                let rect = cell.shrink2(vec2(PAD, 0.0));
                let right = self.columns[column].right;
                rows.paint(&Cell { row, column, rect, painter, palette, right });
                if pointer.is_some_and(|at| cell.contains(at)) {
                    shown.hovered = Some((row, column, response.clone()));
                }
            }
            left += width;
        }
        response.widget_info(|| WidgetInfo::selected(Role::Row, true, selected, rows.name(row)));
        if response.clicked() {
            shown.clicked = Some(row);
        }
        if response.double_clicked() {
            shown.double_clicked = Some(row);
        }
        if response.secondary_clicked() {
            shown.clicked = Some(row);
        }
        if response.context_menu_opened() || response.secondary_clicked() {
            response.context_menu(|ui| rows.menu(row, ui));
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a step of one function, named for reading")]
    fn header(
        &mut self,
        ui: &mut Ui,
        id: Id,
        rect: Rect,
        widths: &[(usize, f32)],
        offset: f32,
        palette: &Palette,
        shown: &mut Shown,
    ) {
        let painter = ui.painter_at(rect);
        painter.rect_filled(rect, 0.0, palette.panel);
        painter.hline(rect.x_range(), rect.bottom() - 0.5, Stroke::new(1.0, palette.line));
        let mut left = rect.left() + offset;
        for &(at, width) in widths {
            let cell = Rect::from_min_size(pos2(left, rect.top()), vec2(width, rect.height()));
            left += width;
            let column = &self.columns[at];
            let click = ui.interact(cell.intersect(rect), id.with(("sort", at)), Sense::click());
            let sorted = self.sort.filter(|sort| sort.column == at);
            let colour = if click.hovered() || sorted.is_some() { palette.strong } else { palette.weak };
            let font = FontId::proportional(theme::SMALL);
            let inner = cell.shrink2(vec2(PAD, 0.0));
            let room = if sorted.is_some() { 11.0 } else { 0.0 };
            let galley = one_line(&painter, column.title, font, colour, inner.width() - room + 4.0);
            let text_width = galley.size().x;
            let x = if column.right { inner.right() - text_width - room } else { inner.left() };
            painter.galley(pos2(x, inner.center().y - galley.size().y / 2.0), galley, colour);
            if let Some(sort) = sorted {
                let tip = if sort.descending { 3.0 } else { -3.0 };
                let centre = pos2(x + text_width + 7.0, inner.center().y + tip);
                marks::arrow_head(&painter, centre, vec2(0.0, tip), 6.0, colour);
            }
            click.widget_info(|| {
                WidgetInfo::selected(
                    Role::ColumnHeader,
                    true,
                    sorted.is_some(),
                    format!("sort by {}", column.title),
                )
            });
            if click.clicked() {
                shown.sorted = true;
                // Descending first: problems, queues and ages are looked for from the top.
                self.sort = match sorted {
                    None => Some(Sort { column: at, descending: true }),
                    Some(Sort { descending: true, .. }) => Some(Sort { column: at, descending: false }),
                    Some(_) => None,
                };
            }
            click.on_hover_text(column.hint);
            self.handle(ui, id, at, pos2(cell.right(), rect.center().y), rect, palette);
        }
    }

    /// The edge of a column, to be dragged.
    fn handle(&mut self, ui: &mut Ui, id: Id, at: usize, centre: Pos2, header: Rect, palette: &Palette) {
        if self.columns[at].grows {
            return;
        }
        let rect = Rect::from_center_size(centre, vec2(8.0, header.height())).intersect(header);
        if rect.width() <= 0.0 {
            return;
        }
        let drag = ui.interact(rect, id.with(("width", at)), Sense::drag());
        let title = self.columns[at].title;
        drag.widget_info(|| WidgetInfo::labeled(Role::Splitter, true, format!("width of {title}")));
        if drag.dragged() {
            let width = self.columns[at].width + drag.drag_delta().x;
            self.columns[at].width = width.max(NARROWEST);
        }
        let colour = if drag.hovered() || drag.dragged() { palette.accent } else { palette.line };
        ui.painter().vline(centre.x, header.shrink(5.0).y_range(), Stroke::new(1.0, colour));
        drag.on_hover_cursor(CursorIcon::ResizeHorizontal);
    }
}

/// Paints what is centred in an empty table.
pub fn in_the_middle(ui: &Ui, text: &str, palette: &Palette) {
    let font = FontId::proportional(theme::BODY);
    ui.painter().text(ui.max_rect().center(), Align2::CENTER_CENTER, text, font, palette.weak);
}
